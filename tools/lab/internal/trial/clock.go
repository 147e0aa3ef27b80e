package trial

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// jumps are offsets of the wall clock in seconds. Each is used for two seconds of
// the monotonic clock.
const jumps = "[...]int64{0, 3600, -3600, 400 * 86400, 0, -400 * 86400, 1, -1}"

// clockJumps builds the daemon with an altered time.Now. A Go program reads the
// clock by a direct call of the kernel, so a preloaded library could not change it.
var clockJumps = Trial{
	Name: "clock-jumps",
	About: "the wall clock of every dispatcher jumps every two seconds, by a second, an hour or a year, in both directions: no " +
		"process is declared lost, nothing is late",
	Setup: stage.Setup{
		Daemons: 2,
		Workers: 2,
		Flags:   patientFlags("--heartbeat-timeout", "1s"),
		Offers:  offers,
		Mix:     usual,
		Types:   types,
		Rate:    500,
	},
	Cuts: []Cut{{
		File: "GOROOT/src/time/time.go",
		Old:  "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
		New:  "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += " + jumps + "[uint64(mono)/2e9%8]\n", Times: 1,
	}},
	Jobs:  [3]int{1000, 5000, 20_000},
	Least: [3]time.Duration{8 * time.Second, 20 * time.Second, 45 * time.Second},
	// The complete standard library of Go is rebuilt.
	OnlyLong: true,
	Trouble: func(ctx context.Context, s *Scene) error {
		s.keptFor("none", 0)
		s.call(ctx, s.Daemons[0], history.InMemory)
		return nil
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
		waits := judge.Pickups(h, nil)
		s.Note("pickup_p99", waits.At(0.99))
		s.Note("pickup_max", waits.At(1))
		if p99 := waits.At(0.99); p99 > time.Second {
			failures = append(failures, fmt.Sprintf("p99 from the commit to the start is %v, want at most 1s", round(p99)))
		}
		for i := range h.Changes {
			if h.Changes[i].Kind == history.Lost && h.Changes[i].At < h.Over { // a dispatcher that stops regularly removes its own row
				failures = append(failures, fmt.Sprintf("dispatcher %d was declared lost", h.Changes[i].Dispatcher))
			}
		}
		if r.Crashes > 0 {
			failures = append(failures, fmt.Sprintf("%d crashes were counted and nothing has crashed", r.Crashes))
		}
		for _, c := range s.Calls() {
			if c.Status != 200 {
				failures = append(failures, fmt.Sprintf("the caller of %d was answered %d %s", c.Work.N, c.Status, c.Problem))
			}
		}
		s.Note("calls", len(s.Calls()))
		return failures
	},
}

// shortLease is the lease of quickLease.
const shortLease = 2 * time.Second

var clockAhead = Trial{
	Name: "clock-ahead",
	About: fmt.Sprintf(
		"a dispatcher stops while the database clock is an hour ahead or behind, and the clock is then set right: it is declared "+
			"lost within its lease and %v, and no other one is",
		grace,
	),
	Setup: stage.Setup{Daemons: 3, Workers: 1, Flags: patientFlags(quickLease...), Offers: offers, Mix: lasting(300), Types: types, Rate: 150},
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
	s.Note("run_again", len(again))
	s.Note("again_max", again.At(1))
	if len(again) == 0 {
		failures = append(failures, "no job of a stopped dispatcher ran again")
	}
	if lost < len(s.killed) {
		failures = append(failures, fmt.Sprintf("%d of %d stopped dispatchers were declared lost", lost, len(s.killed)))
	}
	if worst := again.At(1); worst > shortLease+grace {
		failures = append(failures,
			fmt.Sprintf("a job of a stopped dispatcher ran again after %v, want at most %v", round(worst), shortLease+grace))
	}
	return failures
}
