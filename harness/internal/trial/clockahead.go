package trial

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/harness/internal/history"
	"github.com/dispatcherd/dispatcherd/harness/internal/judge"
	"github.com/dispatcherd/dispatcherd/harness/internal/stage"
)

// shortLease is the lease of quickLease.
const shortLease = 2 * time.Second

var clockAhead = Trial{
	Name:  "clock-ahead",
	About: fmt.Sprintf("a dispatcher stops while the database clock is an hour ahead or behind, and the clock is then set right: it is declared lost within its lease and %v, and no other one is", grace),
	Setup: stage.Setup{Daemons: 3, Workers: 1, Flags: patientFlags(quickLease...), Offers: offers, Mix: lasting(300), Types: types, Rate: 60},
	Jobs:  [3]int{300, 1000, 6000},
	Least: [3]time.Duration{11 * time.Second, 22 * time.Second, 2 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		err := s.Exec(ctx, setClock...)
		for i := 0; err == nil && ctx.Err() == nil; i++ {
			err = s.stopWithWrongClock(context.WithoutCancel(ctx), s.Daemons[i%len(s.Daemons)], []string{"1 h", "-1 h"}[i%2])
		}
		return err
	},
	Verify: verifyClockAhead,
}

// stopWithWrongClock suspends a dispatcher until the others must have declared it lost.
// Its last heartbeat was sent while the database clock was wrong.
func (s *Scene) stopWithWrongClock(ctx context.Context, d *stage.Daemon, step string) error {
	if err := s.Exec(ctx, fmt.Sprintf(`UPDATE chaos.clock SET step = '%s'`, step)); err != nil {
		return err
	}
	s.rest(ctx, shortLease) // each dispatcher sends heartbeats
	id, err := s.Number(ctx, `SELECT id FROM dispatcherd.dispatchers WHERE name = $1 AND lost_at IS NULL`, d.Name)
	if err != nil {
		return err
	}
	from := history.Now()
	s.giveUp(s.slotsOf(d))
	s.killed[int32(id)] = from
	d.Signal(syscall.SIGSTOP)
	err = s.Exec(ctx, `UPDATE chaos.clock SET step = '0'`)
	s.rest(ctx, shortLease+grace)
	d.Signal(syscall.SIGCONT)
	s.rest(ctx, time.Second)
	s.kept(d.Name, from)
	return err
}

func verifyClockAhead(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
	lost := 0
	for i := range h.Changes {
		c := &h.Changes[i]
		if c.Kind != history.Lost || c.At > h.Over { // a dispatcher that stops regularly removes its own row
			continue
		}
		lost++
		if at, stopped := s.killed[c.Dispatcher]; !stopped || c.At < at {
			failures = append(failures, fmt.Sprintf("dispatcher %d was declared lost, but it was not stopped", c.Dispatcher))
		}
	}
	again := judge.AfterLosses(h, s.killed)
	s.Note("stopped", len(s.killed))
	s.Note("declared_lost", lost)
	s.Note("again_max", again.At(1))
	if lost < len(s.killed) {
		failures = append(failures, fmt.Sprintf("%d of %d stopped dispatchers were declared lost", lost, len(s.killed)))
	}
	if worst := again.At(1); worst > shortLease+grace {
		failures = append(failures, fmt.Sprintf("a job of a stopped dispatcher ran again after %v, want at most %v", round(worst), shortLease+grace))
	}
	return failures
}
