package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// mostMemory bounds the memory of a dispatcher beside a hostile caller.
const mostMemory = 512 << 20

var hostileCaller = Trial{
	Name: "hostile-caller",
	About: fmt.Sprintf("a user of the sockets inserts a key that its upload holds, spawns on a locked key, and sends long useless frames: "+
		"others wait at most %d times as long (p99); it does not read answers and events: the dispatcher has at most %d MB (root only)",
		unfair, mostMemory>>20),
	Setup:   publicSetup(),
	Jobs:    [3]int{500, 2000, 20_000},
	Least:   [3]time.Duration{20 * time.Second, 40 * time.Second, 5 * time.Minute},
	Whole:   true,
	Trouble: attackAsCaller([]string{"upload", "spawns", "pings"}, []string{"answers", "events"}),
	Verify: func(s *Scene, h *history.History, r *judge.Report) []string {
		failures := s.verifyHonest(h, r)
		s.Note("memory_mb", s.memory>>20)
		if s.memory > mostMemory {
			r.Excess++
			failures = append(failures, fmt.Sprintf("the dispatcher had %d MB, want at most %d", s.memory>>20, mostMemory>>20))
		}
		return failures
	},
}

// publicSetup is besideHostile with sockets that another user may open. The hostile program has the slots for hostile jobs.
func publicSetup() stage.Setup {
	o := besideHostile()
	o.Public, o.Offers, o.Types = true, offers, types
	return o
}

// attackAsCaller returns the trouble of some attacks of the hostile program. Beside those that are notCompared, honest users are served,
// but more slowly.
func attackAsCaller(names, notCompared []string) func(ctx context.Context, s *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		d := s.Daemons[0]
		err := s.besideAttacks(ctx, names, notCompared, func(_ context.Context, name string) (func() error, error) {
			p, err := s.StartHostile(name, d)
			if err != nil {
				return nil, err
			}
			return func() error {
				p.Kill()
				return nil
			}, nil
		})
		_, s.memory = rig.Memory(d.PID())
		return err
	}
}
