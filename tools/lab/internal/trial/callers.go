package trial

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// How long callers wait. Durable requests wait for longer than every outage in this
// trial.
var willing = map[history.Manner]time.Duration{
	history.InMemory: 1500 * time.Millisecond,
	history.Durable:  20 * time.Second,
	history.Async:    time.Minute,
}

var callers = Trial{
	Name: "callers",
	About: "on-demand callers while Postgres goes down, dispatchers and workers are killed, and the workers of a dispatcher are all frozen: " +
		"each gets one correct answer, and every durable request is done in the end",
	Setup: stage.Setup{
		Daemons: 2, Workers: 3, Flags: patientFlags("--lease", "2s", "--heartbeat-timeout", "1s"),
		Offers: offers, Mix: usual, Types: types, Rate: 500,
	},
	Jobs:  [3]int{2000, 5000, 100_000},
	Least: [3]time.Duration{12 * time.Second, 18 * time.Second, 4 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		var all sync.WaitGroup
		for i := range 6 * len(s.Daemons) {
			manner := []history.Manner{history.InMemory, history.InMemory, history.Durable, history.Async}[i/len(s.Daemons)%4]
			all.Go(func() { s.call(ctx, s.Daemons[i%len(s.Daemons)], manner) })
		}
		defer all.Wait()
		for i := 0; ctx.Err() == nil; i++ {
			if err := s.disturb(ctx, s.Daemons[i%len(s.Daemons)], i%5); err != nil {
				return err
			}
			s.rest(ctx, 700*time.Millisecond)
		}
		return nil
	},
	Verify: verifyCallers,
}

// call sends requests to one dispatcher, one after the other.
func (s *Scene) call(ctx context.Context, d *stage.Daemon, manner history.Manner) {
	for ctx.Err() == nil {
		if c := s.Call(ctx, d, manner, willing[manner]); c.Status != 200 && c.Status != 202 {
			s.rest(ctx, 50*time.Millisecond)
		}
		s.rest(ctx, 20*time.Millisecond)
	}
}

// disturb injects one of the faults that affect callers.
func (s *Scene) disturb(ctx context.Context, d *stage.Daemon, which int) error {
	s.giveUp(s.slotsOf(nil))
	switch which {
	case 0:
		return s.Postgres.Restart(ctx, rig.Fast, 1500*time.Millisecond)
	case 1:
		d.Kill()
	case 2:
		for _, w := range s.Workers {
			if w.Daemon == d {
				w.Kill()
			}
		}
	case 3:
		d.Signal(syscall.SIGTERM)
	case 4:
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			for _, w := range s.Workers {
				if w.Daemon == d {
					w.Signal(signal)
				}
			}
			s.rest(ctx, 2*time.Second)
		}
	}
	return nil
}

// verifyCallers checks what the judge cannot know: which dispatchers were running.
func verifyCallers(s *Scene, _ *history.History, _ *judge.Report) (failures []string) {
	answers := map[int]int{}
	inMemory, refused := 0, 0
	for _, c := range s.Calls() {
		if c.Refused {
			refused++
			continue
		}
		answers[c.Status]++
		if c.Manner == history.InMemory {
			inMemory++
		}
		if c.Status != 0 {
			continue
		}
		for _, d := range s.Daemons {
			if margin := history.Slack.Nanoseconds(); d.Name == c.Daemon && d.AliveAllThrough(c.Begun-margin, c.Ended+margin) {
				failures = append(
					failures,
					fmt.Sprintf("the caller of %d (%s) was not answered by %s, which was running: %s", c.Work.N, c.Manner, d.Name, c.Problem),
				)
			}
		}
	}
	s.Note("calls", len(s.Calls()))
	s.Note("in_memory", inMemory)
	for _, status := range []int{200, 202, 429, 503, 504} {
		s.Note(fmt.Sprint("answered_", status), answers[status])
	}
	s.Note("connections_broken", answers[0])
	s.Note("not_listening", refused)
	for _, status := range []int{200, 202, 503} {
		if answers[status] == 0 {
			failures = append(failures, fmt.Sprintf("no caller was answered %d", status))
		}
	}
	return failures
}
