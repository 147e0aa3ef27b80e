package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/hostile"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// besideHostile is the setup of trials with honest and hostile users. Hostile jobs have slots of their own: the trials are about what has
// no other bound.
func besideHostile() stage.Setup {
	return stage.Setup{
		Daemons:    1,
		Workers:    1,
		Flags:      patientFlags(),
		Offers:     append(slices.Clip(offers), stage.Offer{Slots: 8, Types: []string{history.Hostile}}),
		Mix:        lasting(2),
		Types:      append(slices.Clip(types), history.Hostile),
		Rate:       100,
		Structures: 24,
		Steady:     true,
	}
}

// settled is how long honest users work before their waits count, because connections are established and statements prepared in this time.
// It is also the time from the last wait without a hostile user that counts to the first attack, which must not affect this wait.
const settled = 500 * time.Millisecond

// besideAttacks lets honest users work without, beside and again without a hostile user. The attacks begin one after the other and last
// equally long, or as long as it takes to begin them. Attacks that are notCompared follow at the end. begin begins an attack; what it
// returns ends it.
func (s *Scene) besideAttacks(ctx context.Context, attacks, notCompared []string,
	begin func(ctx context.Context, attack string) (func() error, error),
) (err error) {
	s.keptFor("none", 0)
	end, err := s.workHonestly(ctx, s.Daemons[0])
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, end(), s.RemoveHostile(context.WithoutCancel(ctx)))
	}()
	s.rest(ctx, settled)
	calm := func() {
		from := history.Now()
		s.rest(ctx, s.least/5)
		s.without = append(s.without, span{from: from, to: history.Now()})
		s.rest(ctx, settled)
	}
	calm()
	for _, attack := range attacks {
		period, err := s.attack(ctx, attack, s.least*2/5/time.Duration(len(attacks)), begin)
		if err != nil {
			return err
		}
		s.with = append(s.with, period)
	}
	s.rest(ctx, settled)
	calm()
	for _, attack := range notCompared {
		period, err := s.attack(ctx, attack, s.least/5/time.Duration(len(notCompared)), begin)
		if err != nil {
			return err
		}
		s.beside = append(s.beside, period)
	}
	return nil
}

// attack runs an attack for a while.
func (s *Scene) attack(ctx context.Context, name string, d time.Duration,
	begin func(ctx context.Context, attack string) (func() error, error),
) (_ span, err error) {
	began, from := time.Now(), history.Now()
	stop, err := begin(context.WithoutCancel(ctx), name)
	if err == nil {
		s.rest(ctx, d-time.Since(began))
		if stop != nil {
			err = stop()
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return span{from, history.Now(), name}, err
}

// producerSizes are the sizes of the attacks of a hostile producer, relative to those of the lab's command flows.
var producerSizes = map[string][3]float64{
	"members":    {0.002, 0.02, 0.1},
	"dependants": {0.05, 0.1, 0.3},
	"dense":      {0.05, 0.3, 1},
	"results":    {0.05, 0.1, 0.3},
	"seal":       {0.001, 0.005, 0.02},
}

// attackAsProducer returns the trouble of some attacks. Meanwhile a session holds a snapshot.
func attackAsProducer(names ...string) func(ctx context.Context, s *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		whole := context.WithoutCancel(ctx)
		site, err := hostile.Open(whole, s.URL(), history.Hostile)
		if err != nil {
			return err
		}
		defer site.Close(whole)
		attacks := slices.Concat(hostile.ProducerAttacks(uniqueKeys, types[0]), hostile.FlowAttacks(), hostile.BatchAttacks())
		var snapshot *hostile.Held
		err = s.besideAttacks(ctx, names, nil, func(ctx context.Context, name string) (end func() error, err error) {
			if snapshot == nil {
				if snapshot, err = site.Hold(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `SELECT`); err != nil {
					return nil, err
				}
			}
			site.Size = producerSizes[name][s.Size]
			a := &attacks[slices.IndexFunc(attacks, func(a hostile.Attack) bool { return a.Name == name })]
			if a.Prepare != nil {
				err = a.Prepare(ctx, site)
			}
			if err == nil {
				end, err = a.Begin(ctx, site)
			}
			return end, err
		})
		if snapshot != nil {
			err = errors.Join(err, snapshot.End())
		}
		return err
	}
}

var hostileProducer = Trial{
	Name: "hostile-producer",
	About: fmt.Sprintf("a producer seals batches of others and takes their unique keys in open transactions, tries to lock, floods with "+
		"notifications, inserts batches and flows of great size, and holds locks and a snapshot: others wait at most %d times as long (p99)",
		unfair),
	Setup: besideHostile(),
	Jobs:  [3]int{500, 2000, 20_000},
	Least: [3]time.Duration{20 * time.Second, 40 * time.Second, 5 * time.Minute},
	Whole: true,
	Trouble: attackAsProducer("seals", "uniques", "locks", "notifications", "members", "dependants", "dense", "results", "lockedjob",
		"seal"),
	Verify: (*Scene).verifyHonest,
}

// verifyHonest compares the waits of honest users, and is for trials in which no process dies.
func (s *Scene) verifyHonest(h *history.History, r *judge.Report) []string {
	return append(untroubled(s, h, r), s.compareHonest(h, r)...)
}
