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

// stoppedFor is how long a dispatcher is suspended.
func stoppedFor(size Size) time.Duration {
	if size == Long {
		return time.Minute
	}
	return 5 * time.Second
}

// stoppedDispatcher suspends a dispatcher. Its workers end their jobs meanwhile,
// and the other dispatcher runs the same jobs again. The other one starts them at
// the earliest 3 s after the stop (lease and time to resume), and they are long
// enough to still run when the suspended dispatcher continues after 5 s and sends
// its late statements.
var stoppedDispatcher = Trial{
	Name:  "stopped-dispatcher",
	About: "SIGSTOP of a dispatcher past its lease (60 s in long), and SIGCONT: its statements about jobs that others took over are refused",
	Setup: stage.Setup{
		Daemons: 2,
		Workers: 3,
		Flags:   patientFlags("--lease", "2s", "--resume", "1s"),
		Offers:  offers,
		Mix:     lasting(3000),
		Types:   types,
		Rate:    40,
	},
	Jobs:  [3]int{300, 700, 8000},
	Least: [3]time.Duration{9 * time.Second, 18 * time.Second, 200 * time.Second},
	// The long size uses the defaults: a lease of 30 s and a heartbeat every
	// second.
	LongFlags: patientFlags(),
	Trouble: func(ctx context.Context, s *Scene) error {
		refused := 0
		for ctx.Err() == nil {
			s.rest(ctx, 1500*time.Millisecond)
			n, err := s.suspend(ctx, s.Daemons[0])
			if err != nil {
				return err
			}
			refused += n
		}
		s.Note("refused", refused)
		s.refused = refused
		return nil
	},
	Verify: func(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
		lost := 0
		for i := range h.Changes {
			if h.Changes[i].Kind == history.Lost {
				lost++
			}
		}
		s.Note("declared_lost", lost)
		if lost == 0 {
			failures = append(failures, "no dispatcher was declared lost")
		}
		if s.refused == 0 {
			failures = append(failures, "no statement of a dispatcher was refused after the stop")
		}
		return failures
	},
}

// suspend stops a dispatcher for the duration of the size.
func (s *Scene) suspend(ctx context.Context, d *stage.Daemon) (refused int, err error) {
	return s.suspendFor(ctx, d, stoppedFor(s.Size))
}

// suspendFor stops a dispatcher for a duration and returns how many of its later
// statements were refused.
func (s *Scene) suspendFor(ctx context.Context, d *stage.Daemon, long time.Duration) (refused int, err error) {
	before, err := d.Metrics(context.WithoutCancel(ctx))
	if err != nil {
		return 0, fmt.Errorf("before the stop: %w", err)
	}
	from := history.Now()
	s.giveUp(s.slotsOf(d))
	d.Signal(syscall.SIGSTOP)
	s.rest(ctx, long)
	d.Signal(syscall.SIGCONT)
	s.rest(context.WithoutCancel(ctx), 2*time.Second)
	after, err := d.Metrics(context.WithoutCancel(ctx))
	if err != nil {
		return 0, fmt.Errorf("after the stop: %w", err)
	}
	s.kept(d.Name, from)
	return int(after.Event("stale") - before.Event("stale")), nil
}

var stoppedWorker = Trial{
	Name:  "stopped-worker",
	About: "SIGSTOP of a worker past the heartbeat, and SIGCONT: its jobs run on other workers, and its late reports are rejected",
	Setup: stage.Setup{
		Daemons: 2, Workers: 3, Flags: patientFlags("--heartbeat-timeout", "1s"),
		Offers: offers, Mix: lasting(300), Types: types, Rate: 200,
	},
	Jobs:  [3]int{1000, 4000, 40_000},
	Least: [3]time.Duration{6 * time.Second, 15 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for i := 0; ctx.Err() == nil; i++ {
			w, from := s.Workers[i%len(s.Workers)], history.Now()
			s.giveUp(w.Slots)
			w.Signal(syscall.SIGSTOP)
			s.rest(ctx, 2*time.Second)
			w.Signal(syscall.SIGCONT)
			s.rest(ctx, 200*time.Millisecond)
			s.kept(w.Name, from)
		}
		return nil
	},
	Verify: func(_ *Scene, _ *history.History, r *judge.Report) []string {
		if r.Twice == 0 {
			return []string{"no job of a stopped worker ran on another worker"}
		}
		return nil
	},
}
