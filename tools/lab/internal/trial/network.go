package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// networkFault is one kind of network fault.
type networkFault struct {
	rules fault.Rules
	act   func(*fault.Proxy)
	last  time.Duration
}

// networkFaults are the network faults. A cut in one direction lasts longer than the lease
// of these trials, so that other dispatchers declare an unreachable one lost.
var networkFaults = []networkFault{
	{rules: fault.Rules{HoldUp: true}, last: 3 * time.Second},
	{act: (*fault.Proxy).Cut, last: 200 * time.Millisecond},
	{rules: fault.Rules{HoldDown: true}, last: 3 * time.Second},
	{act: (*fault.Proxy).Reset, last: 200 * time.Millisecond},
	{act: (*fault.Proxy).HalfOpen, last: 500 * time.Millisecond},
	{rules: fault.Rules{Delay: 30 * time.Millisecond}, last: time.Second},
	{rules: fault.Rules{Refuse: true}, act: (*fault.Proxy).Cut, last: time.Second},
	{rules: fault.Rules{HoldUp: true, HoldDown: true}, last: 3 * time.Second},
}

// injectNetworkFaults injects the faults in turn until ctx ends, each into one proxy of each
// daemon, and then removes them. A fault makes the daemon give up the jobs of its
// workers, or makes other dispatchers declare the daemon lost.
func (s *Scene) injectNetworkFaults(ctx context.Context, proxy func(*stage.Daemon) *fault.Proxy, networkFaults []networkFault) {
	defer func() {
		for _, d := range s.Daemons {
			proxy(d).Set(fault.Rules{})
		}
	}()
	for i := 0; ctx.Err() == nil; i++ {
		d, b := s.Daemons[i%len(s.Daemons)], networkFaults[i/len(s.Daemons)%len(networkFaults)]
		p, from := proxy(d), history.Now()
		s.giveUp(s.slotsOf(d))
		p.Set(b.rules)
		if b.act != nil {
			b.act(p)
		}
		s.rest(ctx, b.last)
		p.Set(fault.Rules{})
		s.rest(ctx, 300*time.Millisecond)
		s.kept(d.Name, from)
	}
}

func (s *Scene) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

var partition = Trial{
	Name:  "partition",
	About: "the network between dispatchers and Postgres: held in either direction past the lease, cut, reset, half-open, slow, refused",
	Setup: stage.Setup{Daemons: 2, Workers: 3, Flags: patientFlags(quickLease...), Offers: offers, Mix: usual, Types: types},
	Jobs:  [3]int{4000, 30_000, 200_000},
	Least: [3]time.Duration{15 * time.Second, 34 * time.Second, 5 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.injectNetworkFaults(ctx, func(d *stage.Daemon) *fault.Proxy { return d.Database }, networkFaults)
		return nil
	},
}

var workerNetwork = Trial{
	Name:  "worker-network",
	About: "the sockets between workers and dispatchers: held in either direction, cut, half-open, slow, refused",
	Setup: stage.Setup{
		Daemons: 2, Workers: 3, Flags: patientFlags("--heartbeat-timeout", "1s"),
		Offers: offers, Mix: usual, Types: types,
	},
	Jobs:  [3]int{2000, 10_000, 100_000},
	Least: [3]time.Duration{8 * time.Second, 25 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.injectNetworkFaults(ctx, func(d *stage.Daemon) *fault.Proxy { return d.Workers }, networkFaults)
		return nil
	},
}

var halfOpen = Trial{
	Name: "half-open",
	About: "workers whose dispatcher has disconnected without their knowledge, while their jobs end: their reports are lost, " +
		"and their jobs run on other workers",
	Setup: stage.Setup{
		Daemons: 2, Workers: 3, Flags: patientFlags("--heartbeat-timeout", "1s"),
		Offers: offers, Mix: lasting(200), Types: types, Rate: 300,
	},
	Jobs:  [3]int{1000, 4000, 40_000},
	Least: [3]time.Duration{6 * time.Second, 14 * time.Second, 2 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.injectNetworkFaults(ctx, func(d *stage.Daemon) *fault.Proxy { return d.Workers }, []networkFault{
			{act: (*fault.Proxy).HalfOpen, last: time.Second},
			{rules: fault.Rules{HoldUp: true}, last: 2 * time.Second},
			{act: (*fault.Proxy).HalfOpen, last: 50 * time.Millisecond},
		})
		return nil
	},
	Verify: func(_ *Scene, _ *history.History, r *judge.Report) []string {
		if r.Executions == r.Jobs {
			return []string{"no job ran again"}
		}
		return nil
	},
}

var lostAnswers = Trial{
	Name:  "lost-answers",
	About: "every tenth claim, finish, adoption, and COMMIT of a producer is executed but its answer is lost",
	Setup: stage.Setup{Daemons: 2, Workers: 3, Flags: patientFlags(), Offers: offers, Mix: usual, Types: types},
	Jobs:  [3]int{4000, 20_000, 200_000},
	Least: [3]time.Duration{6 * time.Second, 15 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		lossy := fault.Rules{LoseAnswers: 0.1, Lossy: []string{"claim", "claim-contended", "resolve", "done", "ended", "pending", "adopt"}}
		for _, d := range s.Daemons {
			d.Database.Set(lossy)
		}
		s.Producer.Database.Set(fault.Rules{LoseAnswers: 0.1, Lossy: []string{"commit"}})
		<-ctx.Done()
		for _, d := range s.Daemons {
			d.Database.Set(fault.Rules{})
		}
		return nil
	},
	Verify: func(s *Scene, _ *history.History, r *judge.Report) (failures []string) {
		lost := 0
		for _, d := range s.Daemons {
			lost += d.Database.Lost()
		}
		s.Note("answers_lost", lost)
		if lost < 10 {
			failures = append(failures, fmt.Sprintf("only %d answers were lost", lost))
		}
		if r.Unknown == 0 {
			failures = append(failures, "every producer knew the fate of its commits")
		}
		if r.Crashes > 0 {
			failures = append(failures, fmt.Sprintf("%d crashes were counted and nothing has crashed", r.Crashes))
		}
		return failures
	},
}
