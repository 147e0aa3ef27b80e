package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/jackc/pgx/v5"
)

// Store is one dispatcher's view of the table. Its methods may be called from
// any goroutine; calls of the same kind run one after the other. Before
// [Store.Join] it can only fetch.
type Store struct {
	config Config
	fetch  *link
	look   *link // comes up with the first dear look
	claim  *link
	finish *link
	adopt  *link // comes up with the first adoption
	lease  *link // beats, bell, progress
	sweep  *link // slow work that must not delay a beat

	me    atomic.Int32 // id of this run in dispatcherd.dispatchers, 0 = not joined
	epoch atomic.Int32 // claims carry it; raised by Resolve

	rivalry  int      // claims to make yet with row locks; owned by the holder of claim's turn
	rests    rests    // owned by the holder of lease's turn
	cleaning cleaning // since the oldest snapshot is there, or a vacuum has cleaned; with vainFrom owned by the holder of sweep's turn
	vainFrom int64

	mu    sync.Mutex
	marks marks
}

// Open connects once, checks that the schema fits this build, and returns a
// store whose connections come up when they are first used.
func Open(ctx context.Context, c Config) (*Store, error) {
	c = c.withDefaults()
	s := &Store{config: c, marks: newMarks(), rests: newRests(), vainFrom: vainFrom}
	var errs [7]error
	s.fetch, errs[0] = newLink(c, "fetch", fetchStatements)
	s.look, errs[1] = newLink(c, "look", fetchStatements)
	s.claim, errs[2] = newLink(c, "claim", claimStatements)
	s.finish, errs[3] = newLink(c, "finish", finishStatements)
	s.adopt, errs[4] = newLink(c, "adopt", adoptStatements)
	s.lease, errs[5] = newLink(c, "lease", leaseStatements)
	s.sweep, errs[6] = newLink(c, "sweep", nil)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	s.claim.setup = fmt.Sprintf("SET lock_timeout = %d", lockPatience.Milliseconds())
	if c.AsyncClaims {
		s.claim.setup += "; SET synchronous_commit = off"
	}
	s.look.timeout = lookTimeout
	s.look.setup = fmt.Sprintf("SET statement_timeout = %d", (lookTimeout * 4 / 5).Milliseconds())
	s.sweep.timeout = sweepTimeout
	s.sweep.setup = fmt.Sprintf("SET enable_seqscan = on; SET enable_hashjoin = on; SET plan_cache_mode = auto; SET statement_timeout = %d",
		(sweepTimeout * 4 / 5).Milliseconds())
	// The link that prepares nothing works without a schema.
	err := s.sweep.do(ctx, OpConnect, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		if err := s.checkPooler(ctx, conn); err != nil {
			return 0, err
		}
		return 0, migrations.Check(ctx, conn)
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends all connections. Calls in flight end first; later ones are refused.
func (s *Store) Close() {
	for _, l := range []*link{s.fetch, s.look, s.claim, s.finish, s.adopt, s.lease, s.sweep} {
		l.close()
	}
}

// Dispatcher returns the id under which this store claims; 0 before Join.
func (s *Store) Dispatcher() int32 { return s.me.Load() }
