package trial

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// someKeyed returns short jobs, some of which have keys.
func someKeyed(n int64) history.Work {
	w := lasting(2)(n)
	switch n % 8 {
	case 0, 3:
		w.Keys = "pool"
	case 5:
		w.Keys = fmt.Sprintf("serial-%d", n/8%3)
	}
	return w
}

// allKinds is the setup of trials with plain jobs, keys, schedules, batches, flows and parents.
func allKinds() stage.Setup {
	return stage.Setup{
		Daemons:    2,
		Workers:    1,
		Flags:      patientFlags(),
		Offers:     offers,
		Mix:        someKeyed,
		Types:      types,
		Rate:       100,
		Structures: 24,
		Schedules:  4,
		Capacity:   capacities,
	}
}

var publication = Trial{
	Name: "publication",
	About: fmt.Sprintf("a publication of all tables is created and dropped: everything goes on, users wait at most %d times as long (p99), "+
		"and dispatchers are ready all the time", unfair),
	Setup: allKinds(),
	Jobs:  [3]int{300, 1000, 5000},
	Least: [3]time.Duration{6 * time.Second, 20 * time.Second, 2 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		watched := s.watchReady(ctx)
		err := s.besideAttacks(ctx, slices.Repeat([]string{"publication"}, 2), nil, func(ctx context.Context, _ string) (func() error, error) {
			return func() error { return s.Exec(ctx, `DROP PUBLICATION chaos`) }, s.Exec(ctx, `CREATE PUBLICATION chaos FOR ALL TABLES`)
		})
		for i := range s.with {
			s.with[i].from += settled.Nanoseconds() // Postgres plans all statements again
		}
		s.ready = []span{{from: s.without[0].from, to: history.Now()}}
		<-watched
		return err
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) []string {
		return append(s.verifyHonest(h, r), s.verifyReady()...)
	},
}

// probe is an answer of /readyz.
type probe struct {
	at     int64
	daemon string
	answer error // nil = it is ready
}

// watchReady asks the dispatchers whether they are ready until ctx ends. It closes the channel when it has ended.
func (s *Scene) watchReady(ctx context.Context) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.every(ctx, 50*time.Millisecond, func(int) {
			for _, d := range s.Daemons {
				at := history.Now()
				s.probes = append(s.probes, probe{at, d.Name, d.Ready(context.WithoutCancel(ctx))})
			}
		})
	}()
	return done
}

// verifyReady checks that /readyz tells the truth.
func (s *Scene) verifyReady() (failures []string) {
	wrong, asked := 0, 0
	for _, p := range s.probes {
		isReady := contains(s.ready, p.at)
		if !isReady && !contains(s.notReady, p.at) {
			continue
		}
		if asked++; (p.answer == nil) == isReady {
			continue
		}
		if wrong++; wrong == 1 {
			failures = append(failures, fmt.Sprintf("%s answered at %d, want ready=%t: %v", p.daemon, p.at, isReady, p.answer))
		}
	}
	s.Note("readyz_asked", asked)
	s.Note("readyz_wrong", wrong)
	if asked == 0 {
		failures = append(failures, "no dispatcher was asked whether it is ready")
	}
	return failures
}
