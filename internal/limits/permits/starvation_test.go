package permits

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// starvation is a Book under endless load on all keys, whose rows start and end after some steps of a second.
type starvation struct {
	*Book

	rng     *rand.Rand
	next    int64
	waiting []*Permit
	running []*Permit
}

func newStarvation(seed uint64) *starvation {
	s := &starvation{rng: rand.New(rand.NewPCG(seed, 2))}
	s.Book = New(Config{Patience: 30_000_000, PerPriority: 10_000_000}, []Limit{
		{Key: "x", Capacity: 2}, {Key: "y", Capacity: 1}, {Key: "z", Capacity: 3}, {Key: "host", Capacity: 2, Scope: Dispatcher},
		{Key: "disk", Capacity: 1, Scope: Dispatcher}, {Key: "r", Capacity: Unlimited, Rate: 3, Per: 5_000_000},
	})
	s.Advance(1_000_000_000)
	s.SetTypes(map[string]Type{"a": {Most: 1, Dispatchers: []int32{1, 2}}, "b": {Most: 3, Dispatchers: []int32{2, 3}}})
	return s
}

// keys returns up to three different keys.
func (s *starvation) keys() string {
	all := []string{"x", "y", "z", "host", "disk", "r"}
	s.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return strings.Join(all[:1+s.rng.IntN(3)], " ")
}

func (s *starvation) arrive(keys string, priority int16) int64 {
	s.next++
	s.Add(Class{Keys: keys, Type: []string{"a", "b"}[s.rng.IntN(2)], Priority: priority}, Job{s.now, s.next})
	return s.next
}

// step passes a second, and reports whether a job is admitted in it.
func (s *starvation) step(t *testing.T, victim int64) bool {
	s.Advance(s.now + 1_000_000)
	for range 3 {
		s.arrive(s.keys(), int16(s.rng.IntN(3)))
	}
	for _, r := range s.Refills(100) {
		s.Filled(r, nil, false) // those are not needed
	}
	s.running = slices.DeleteFunc(s.running, func(p *Permit) bool {
		ends := s.rng.IntN(3) == 0
		if ends {
			s.Ended(p.ID, p.Fence)
		}
		return ends
	})
	s.waiting = slices.DeleteFunc(s.waiting, func(p *Permit) bool {
		starts := s.rng.IntN(2) == 0
		if starts {
			s.Started(p.ID, p.Fence, s.now)
			s.running = append(s.running, p)
		}
		return starts
	})
	for _, a := range s.Admit(1000) {
		if a.ID == victim {
			return true
		}
		s.waiting = append(s.waiting, s.permits[a.ID])
	}
	for typ, most := range map[string]int{"a": 1, "b": 3} {
		n := 0
		for _, p := range s.waiting {
			if p.Type == typ {
				n++
			}
		}
		require.LessOrEqual(t, n, most)
	}
	return false
}

// Under endless load, every job is admitted in bounded time, whatever its keys and type.
func TestNoJobStarvesUnderEndlessLoad(t *testing.T) {
	longest := 0
	for seed := range uint64(100) {
		s := newStarvation(seed)
		for range 40 {
			s.step(t, 0)
		}
		keys := "x*2 y z*3 r*3"
		if seed%2 == 0 {
			keys = "disk*all host*2 y r*2"
		}
		victim := s.arrive(keys, 0)
		steps := 0
		for !s.step(t, victim) {
			steps++
			require.Less(t, steps, 1000, "seed %d: %s", seed, fmt.Sprintf("%+v", s.Explain(s.of(victim))))
		}
		longest = max(longest, steps)
	}
	t.Logf("the longest wait was %d s", longest)
}

// of returns a waiting job and its class.
func (s *starvation) of(id int64) (Class, Job) {
	for name, c := range s.classes {
		for _, j := range c.jobs {
			if j.ID == id {
				return name, j
			}
		}
	}
	return Class{}, Job{}
}
