package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// GenerateOptions sizes a generated workload.
type GenerateOptions struct {
	Seed    uint64
	Calls   int // calls of the day; all but the call-backs are on-demand
	Batch   int // jobs of the batch stream beside them, all queued
	Agents  int // slots, at least 27
	Workers int // worker processes that share the slots, 1..Agents
	Load    int // percent of their online time that agents are busy, 10..95
}

// DefaultGenerateOptions is the workload of `make demo`: a day of 17 hours that
// lasts 44 s at a speed of 1,400.
func DefaultGenerateOptions() GenerateOptions {
	return GenerateOptions{Seed: 1999, Calls: 5000, Batch: 2200, Agents: 54, Workers: 6, Load: 82}
}

func (o GenerateOptions) validate() error {
	for _, c := range []struct {
		name             string
		value, low, high int
	}{
		{"calls", o.Calls, 1, maxRows / 2},
		{"batch", o.Batch, 0, maxRows / 2},
		{"agents", o.Agents, agentsMeasured(), 100_000},
		{"workers", o.Workers, 1, o.Agents},
		{"load", o.Load, 10, 95},
	} {
		if c.value < c.low || c.value > c.high {
			return fmt.Errorf("generate trace: %s is %d, allowed: %d to %d", c.name, c.value, c.low, c.high)
		}
	}
	return nil
}

// Each random source has one purpose.
const (
	callDice = iota + 1
	batchDice
	sessionDice
)

const (
	secondMS = 1000
	hourMS   = 3600 * secondMS
)

// dayMS is the length of the generated day, from opening to midnight.
func dayMS() int64 { return int64(len(arrivalsPerHour)) * hourMS }

// Generate makes a workload on the model of a bank's call centre, with a
// stream of batch jobs beside the calls. The same options give the same trace
// on every platform.
func Generate(o GenerateOptions) (*Trace, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	t := &Trace{Name: fmt.Sprintf("generated call centre, seed %d", o.Seed)}
	t.Jobs = append(calls(o), batches(o)...)
	slices.SortStableFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.ArrivalMS, b.ArrivalMS) })
	for i := range t.Jobs {
		t.Jobs[i].ID = int64(i + 1)
	}
	t.Slots = agents(o)
	t.Events = sessions(o, t)
	t.sort()
	if err := t.Check(); err != nil {
		return nil, fmt.Errorf("generate trace: %w", err)
	}
	return t, nil
}

// calls draws the calls of the day. It draws the hour of a call by the share
// of the hour, and the instant in the hour uniformly.
func calls(o GenerateOptions) []Job {
	d := newRandom(o.Seed, callDice)
	shares := make([]int64, len(services))
	for i, s := range services {
		shares[i] = s.calls
	}
	jobs := make([]Job, o.Calls)
	for i := range jobs {
		s := &services[d.pick(shares)]
		j := Job{
			ArrivalMS:  int64(d.pick(arrivalsPerHour))*hourMS + d.below(hourMS),
			Type:       s.name,
			Priority:   3,
			Mode:       dispatcherd.OnDemand,
			DurationMS: s.length.draw(d),
		}
		if s.name == callback {
			j.Mode = dispatcherd.Queued
		}
		if d.below(1000) < s.urgent {
			j.Priority = 7
		}
		jobs[i] = j
	}
	return jobs
}

// batchDrops is how many times a day a producer inserts many jobs at once.
const batchDrops = 12

// batches draws the batch stream. Half of the jobs arrive at random instants.
// The other half arrive in batchDrops groups, all jobs of a group at the same
// instant. The stream ends two hours before the day ends, so that the agents
// can finish the jobs.
func batches(o GenerateOptions) []Job {
	d := newRandom(o.Seed, batchDice)
	shares := make([]int64, len(services))
	for i, s := range services {
		shares[i] = s.batch
	}
	end := dayMS() - 2*hourMS
	var drops [batchDrops]int64
	for i := range drops {
		drops[i] = d.below(end)
	}
	jobs := make([]Job, o.Batch)
	for i := range jobs {
		at := d.below(end)
		if i%2 == 1 {
			at = drops[d.below(batchDrops)]
		}
		jobs[i] = Job{
			ArrivalMS:  at,
			Type:       services[d.pick(shares)].name,
			Priority:   dispatcherd.Priority(d.pick([]int64{5, 3, 2})),
			Mode:       dispatcherd.Queued,
			DurationMS: batchLength.draw(d),
		}
	}
	return jobs
}

func agentsMeasured() int {
	n := 0
	for _, s := range skillSets {
		n += s.agents
	}
	return n
}

// agents distributes the measured skill sets over any number of agents, the
// sets with fewer types first. It assigns the agents to workers in the same
// order, so that workers support different types. Of each three agents with
// the largest set, the first also supports audit, and the second also supports
// audit and legal.
func agents(o GenerateOptions) []Slot {
	slots := make([]Slot, o.Agents)
	measured, all := agentsMeasured(), 0
	for i := range slots {
		rank, set := i*measured/o.Agents, 0
		for rank >= skillSets[set].agents {
			rank -= skillSets[set].agents
			set++
		}
		types := slices.Clone(skillSets[set].types)
		if set == len(skillSets)-1 {
			if all%3 != 2 {
				types = append(types, "audit")
			}
			if all%3 == 1 {
				types = append(types, "legal")
			}
			all++
		}
		slices.Sort(types)
		slots[i] = Slot{ID: int64(i + 1), Worker: fmt.Sprintf("team-%d", i*o.Workers/o.Agents+1), Types: types}
	}
	return slots
}
