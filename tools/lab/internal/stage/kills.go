package stage

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// KillInTurn kills a daemon, a worker or Postgres in turn, once in each period, until producing is done.
func (s *Stage) KillInTurn(producing, ctx context.Context, period time.Duration) (kills int, err error) {
	for i := 0; rig.Pause(producing, period) == nil; i++ {
		switch i % 3 {
		case 0:
			s.Daemons[i/3%len(s.Daemons)].Kill()
		case 1:
			s.Workers[i/3%len(s.Workers)].Kill()
		default:
			if err := s.Postgres.Restart(ctx, rig.KillNine, 0); err != nil {
				return kills, fmt.Errorf("restarting Postgres: %w", err)
			}
		}
		kills++
	}
	return kills, ctx.Err()
}
