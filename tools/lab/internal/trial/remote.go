package trial

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// Remote is what remote workers did in a trial.
type Remote struct {
	Again     int         // attempts after the first one, without planned failures
	Adopted   int         // executions that continued at another dispatcher
	Continued int         // executions that continued in a later session, there or at the same dispatcher, or through a partition
	Apart     []span      // partitions of all workers but the last
	Moves     int         // sessions at another dispatcher than the one before
	Drains    []span      // of dispatchers; no connection was cut meanwhile
	DrainCut  int         // executions that did not end as planned in one of these
	Cut       int         // executions that did not end as planned
	Arrived   judge.Waits // from the kill of the first dispatcher to the next session of each worker
}

// remoteTypes is the only type of remote trials.
var remoteTypes = []string{"work"}

// wavering returns jobs of 200 ms, and every fortieth takes between 5 and 40 s, so that it runs on through a partition or a part of one.
func wavering(n int64) history.Work {
	w := history.Work{N: n, Type: remoteTypes[0], Ms: 200}
	if pick(n, 40) == 0 {
		w.Ms = 5000 + pick(n+7, 35_000)
	}
	return w
}

// beforePartition is the time until so many long jobs run that all workers have some.
const beforePartition = 25 * time.Second

// afterPartition is the time between two partitions, in which the workers reconnect.
const afterPartition = 15 * time.Second

// lossyLinks are the ways in which a link is lost. In the first three packets are lost in one direction or both, and neither side learns
// of it. In the last one both sides see the end of the connection, and the worker cannot connect.
var lossyLinks = []fault.Rules{
	{HoldUp: true, HoldDown: true, HoldEnds: true},
	{HoldUp: true, HoldEnds: true},
	{HoldDown: true, HoldEnds: true},
	{Refuse: true},
}

// RemotePartition cuts workers off from all dispatchers, for each of some durations, while another worker runs their jobs.
// With hosts the links of network namespaces are taken down; otherwise proxies hold, or end, the connections.
func RemotePartition(name string, hosts bool, flags []string, lasts ...time.Duration) *Trial {
	total := beforePartition
	for _, d := range lasts {
		total += d + afterPartition
	}
	t := &Trial{
		Name:  name,
		About: fmt.Sprintf("workers on other hosts are cut off from all dispatchers for %v: no job is lost, and none runs twice at once", lasts),
		Setup: stage.Setup{ // three quarters of the slots are busy, so that each worker has jobs
			Daemons: 2, Workers: len(lossyLinks) + 1, Remote: true, Flags: patientFlags(flags...),
			Offers: []stage.Offer{{Slots: 4, Types: remoteTypes}}, Mix: wavering, Types: remoteTypes, Rate: 20,
		},
		Jobs:    [3]int{100, 100, 100},
		Least:   [3]time.Duration{total, total, total},
		Drain:   3 * time.Minute,
		Trouble: func(ctx context.Context, s *Scene) error { return s.partitions(ctx, lasts) },
		Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
			f := s.noteRemote(h)
			if f.Again == 0 {
				failures = append(failures, "no job of a worker that was cut off ran again")
			}
			if f.Continued == 0 {
				failures = append(failures, "no execution continued after a partition")
			}
			return append(failures, exact(r)...)
		},
	}
	if hosts {
		t.Setup.Hosts = t.Setup.Workers
	}
	return t
}

// exact demands that not even executions that were given up overlap.
func exact(r *judge.Report) (failures []string) {
	if r.Twice > 0 || r.Late > 0 {
		failures = append(failures, fmt.Sprintf("%d jobs ran twice at once, %d ran after their end", r.Twice, r.Late))
	}
	return failures
}

// partitions cuts all workers but the last off, and restores them, for each duration.
func (s *Scene) partitions(ctx context.Context, lasts []time.Duration) error {
	lost := s.Workers[:len(s.Workers)-1]
	s.rest(ctx, beforePartition)
	for _, d := range lasts {
		from := history.Now()
		for i, w := range lost {
			if err := s.sever(ctx, w, lossyLinks[i%len(lossyLinks)]); err != nil {
				return err
			}
		}
		s.rest(ctx, d)
		s.remote.Apart = append(s.remote.Apart, span{from: from, to: history.Now()})
		for _, w := range lost {
			if err := s.restoreLink(context.WithoutCancel(ctx), w); err != nil {
				return err
			}
		}
		s.rest(ctx, afterPartition)
		for _, w := range lost {
			s.kept(w.Name, from)
		}
	}
	return nil
}

// sever cuts a worker off.
func (s *Scene) sever(ctx context.Context, w *stage.Worker, how fault.Rules) error {
	if len(w.Links[0]) == 0 {
		return w.Host.Down(ctx)
	}
	w.Set(how)
	if how.Refuse {
		w.Cut()
	}
	return nil
}

func (s *Scene) restoreLink(ctx context.Context, w *stage.Worker) error {
	if len(w.Links[0]) == 0 {
		return w.Host.Up(ctx)
	}
	w.Set(fault.Rules{})
	return nil
}

// noteRemote counts what remote workers did.
func (s *Scene) noteRemote(h *history.History) Remote {
	f := &s.remote
	for i := range h.Changes {
		switch c := &h.Changes[i]; c.Kind {
		case history.Adopted:
			f.Adopted++
		case history.Claimed:
			if c.Attempt > 1 {
				f.Again++
			}
		}
	}
	for i := range h.Processes {
		p := &h.Processes[i]
		for k := range p.Runs {
			switch e := &p.Runs[k]; {
			case e.Outcome == "", e.Outcome == history.Stopped:
				f.Cut++
				if slices.ContainsFunc(f.Drains, func(d span) bool { return e.End > d.from && e.End < d.to }) {
					f.DrainCut++
				}
			case slices.ContainsFunc(p.Sessions, func(c history.Session) bool { return c.At > e.Start && c.At < e.End }),
				p.Keeper != s.Workers[len(s.Workers)-1].Name &&
					slices.ContainsFunc(f.Apart, func(a span) bool { return a.from > e.Start && a.to < e.End }):
				f.Continued++
			}
		}
		for k := 1; k < len(p.Sessions); k++ {
			if p.Sessions[k].Dispatcher != p.Sessions[k-1].Dispatcher {
				f.Moves++
			}
		}
	}
	s.Note("again", f.Again)
	s.Note("adopted", f.Adopted)
	s.Note("continued", f.Continued)
	s.Note("moves", f.Moves)
	s.Note("drains", len(f.Drains))
	s.Note("interrupted", f.Cut)
	s.Note("interrupted_by_drain", f.DrainCut)
	return *f
}

// movePeriod is the time between two moves of one worker. A move takes less than a tenth of a second.
const movePeriod = 500 * time.Millisecond

// drainPeriod is the time between two drains of a dispatcher.
const drainPeriod = 3 * time.Second

// RemoteMoves moves workers between two live dispatchers, at least n times: by cutting their connections, and by draining a dispatcher.
func RemoteMoves(name string, n int) *Trial {
	const processes, members = 2, 50
	last := max(10*time.Second, time.Duration(n)*movePeriod/(processes*members)*2)
	return &Trial{
		Name:  name,
		About: fmt.Sprintf("workers on other hosts move between live dispatchers %d times: cut connections, and drains of a dispatcher", n),
		Setup: stage.Setup{
			Daemons: 2, Workers: processes, Members: members, Remote: true, Flags: patientFlags(),
			Offers: []stage.Offer{{Slots: 2, Types: remoteTypes}}, Types: remoteTypes, Rate: 300,
			Mix: func(n int64) history.Work { return history.Work{N: n, Type: remoteTypes[0], Ms: 20 + pick(n, 400)} },
		},
		Jobs:    [3]int{300, 300, 300},
		Least:   [3]time.Duration{last, last, last},
		Trouble: (func(ctx context.Context, s *Scene) error { return s.move(ctx) }),
		Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
			f := s.noteRemote(h)
			if f.Moves < n {
				failures = append(failures, fmt.Sprintf("the workers moved %d times, want %d", f.Moves, n))
			}
			if f.DrainCut > 0 {
				failures = append(failures, fmt.Sprintf("drains of a dispatcher interrupted %d executions", f.DrainCut))
			}
			return append(failures, exact(r)...)
		},
	}
}

// move cuts the connection of each worker once in a period, and drains the dispatchers in turn.
func (s *Scene) move(ctx context.Context) error {
	var (
		all     sync.WaitGroup
		problem error
		calm    sync.RWMutex // locked while a dispatcher is drained
	)
	for _, w := range s.Workers {
		for m, links := range w.Links {
			all.Go(func() {
				s.rest(ctx, movePeriod*time.Duration(m)/time.Duration(len(w.Links)))
				s.every(ctx, movePeriod, func(int) {
					calm.RLock()
					defer calm.RUnlock()
					s.moveAway(ctx, links)
				})
			})
		}
	}
	all.Go(func() {
		s.every(ctx, drainPeriod, func(i int) {
			calm.Lock()
			defer calm.Unlock()
			if err := s.drainDispatcher(ctx, s.Daemons[i%len(s.Daemons)]); err != nil && ctx.Err() == nil {
				problem = err
			}
		})
	})
	all.Wait()
	return problem
}

// moveAway cuts the connection of a worker, which cannot return to its dispatcher for a moment.
func (s *Scene) moveAway(ctx context.Context, links []*fault.Proxy) {
	i := slices.IndexFunc(links, func(l *fault.Proxy) bool { return l.Open() > 0 })
	if i < 0 {
		return // it is on its way
	}
	links[i].Set(fault.Rules{Refuse: true})
	links[i].Cut()
	s.rest(ctx, movePeriod/2)
	links[i].Set(fault.Rules{})
}

// drainDispatcher moves all workers of a dispatcher to others, and lets it accept workers again.
func (s *Scene) drainDispatcher(ctx context.Context, d *stage.Daemon) error {
	s.rest(ctx, movePeriod) // until the workers whose connections were cut are connected
	from := history.Now()
	if _, err := s.Ask(ctx, d.Daemon, "dispatcher", "drain", d.Name); err != nil {
		return err
	}
	s.rest(ctx, movePeriod)
	s.remote.Drains = append(s.remote.Drains, span{from: from, to: history.Now()})
	_, err := s.Ask(context.WithoutCancel(ctx), d.Daemon, "dispatcher", "resume", d.Name)
	return err
}

// RemoteKill kills a dispatcher that has n remote workers for good, while each of them runs a job.
func RemoteKill(name string, n int) *Trial {
	const jobs, lasts = 20, 20 * time.Second
	return &Trial{
		Name:  name,
		About: fmt.Sprintf("kill -9 of a dispatcher with %d workers on other hosts: all are at the next one within 5 s, no attempt is lost", n),
		Setup: stage.Setup{
			Daemons: 2, Workers: 4, Members: n / 4, Remote: true, Direct: true, Flags: patientFlags(), Rate: max(20, n/jobs),
			Offers: []stage.Offer{{Slots: 1, Types: remoteTypes}}, Types: remoteTypes, Mix: func(n int64) history.Work {
				return history.Work{N: n, Type: remoteTypes[0], Ms: int(lasts.Milliseconds())}
			},
		},
		Jobs:  [3]int{20, 20, 20},
		Least: [3]time.Duration{3 * lasts / 2, 3 * lasts / 2, 3 * lasts / 2},
		Trouble: func(ctx context.Context, s *Scene) error {
			s.rest(ctx, lasts)
			from := history.Now()
			s.Daemons[0].KillFor(time.Hour)
			<-ctx.Done()
			s.kept("", from)
			return nil
		},
		Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
			f := s.noteRemote(h)
			f.Arrived = arrivals(h, s.Daemons[0].Lives()[0].Killed)
			s.remote.Arrived = f.Arrived
			s.Note("arrived", len(f.Arrived))
			s.Note("arrived_p99", f.Arrived.At(0.99))
			if len(f.Arrived) != n || f.Arrived.At(0.99) > 5*time.Second {
				failures = append(failures, "not all workers were at the second dispatcher in time")
			}
			if f.Cut > 0 {
				failures = append(failures, fmt.Sprintf("%d attempts were lost", f.Cut))
			}
			return append(failures, exact(r)...)
		},
	}
}

// arrivals returns the time from an instant to the next session of each worker.
func arrivals(h *history.History, from int64) (waits judge.Waits) {
	for i := range h.Processes {
		for _, c := range h.Processes[i].Sessions {
			if c.At > from {
				waits = append(waits, time.Duration(c.At-from))
				break
			}
		}
	}
	slices.Sort(waits)
	return waits
}
