package trial

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
)

// sealedByAll is a statement that lets every producer seal every batch.
var sealedByAll = withText("owns_batch", "IS NOT TRUE THEN", "IS NULL THEN")

// controlTime is the time of the controls of hostile users, which need one attack only.
var controlTime = [3]time.Duration{12 * time.Second, 12 * time.Second, 12 * time.Second}

// hostileControls are the controls of the trials with honest and hostile users.
func hostileControls() []*Control {
	seals, upload, hidden := hostileProducer, hostileCaller, publication
	seals.Trouble, seals.Least = attackAsProducer("seals"), controlTime
	seals.Before = func(ctx context.Context, s *Scene) error { return s.Exec(ctx, sealedByAll) }
	upload.Trouble, upload.Least = attackAsCaller([]string{"upload"}, nil), controlTime
	hidden.Least = controlTime
	hidden.Before = func(ctx context.Context, s *Scene) error {
		return s.Exec(ctx, `ALTER TABLE dispatcherd.ends REPLICA IDENTITY NOTHING`)
	}
	delayed := func(r *judge.Report) int { return r.Delayed }
	return []*Control{
		{Trial: named(seals, "owner-out", "every producer may seal every batch"), Found: delayed},
		{
			Trial: named(upload, "share-out", "one user may use all connections for callers",
				Cut{"internal/daemon/backend/pool.go", "quota.NewPlaces(int(config.MaxConns) - 2)", "quota.NewPlaces(1000)", 1},
			),
			Found: delayed,
		},
		{Trial: named(hidden, "identity-out", "rows of the table ends cannot be deleted while they are published"), Found: delayed},
		{
			Trial: named(readOnlySessions, "cure-out", "a session that has turned read-only is not replaced",
				Cut{"internal/dsn/dsn.go", "return !Cured(e)", "return true", 1},
				Cut{"internal/dsn/session.go", "return requireWrites(ctx, c)", "return nil", 1},
			),
			Found: delayed,
		},
	}
}
