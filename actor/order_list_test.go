package actor

import (
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd"
)

// TestOrderListAgreesWithTheNaiveReference compares a list with one in which each job has
// its own queue of orders.
func TestOrderListAgreesWithTheNaiveReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l orderList
		var jobs []*job
		given := 0
		want := map[*job][]int{} // orders that a job must still execute
		execute := func(j *job) {
			for do := l.take(j); do != nil; do = l.take(j) {
				do(nil, j)
			}
			require.Empty(t, want[j])
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				j := &job{id: dispatcherd.JobID(len(jobs) + 1)}
				l.add(j)
				jobs = append(jobs, j)
			},
			"give": func(*rapid.T) {
				given++
				number := given
				l.give(func(_ *Core, j *job) {
					require.NotEmpty(t, want[j], "job %d got order %d", j.id, number)
					require.Equal(t, want[j][0], number)
					want[j] = want[j][1:]
				})
				for _, j := range jobs {
					want[j] = append(want[j], number)
				}
			},
			"execute next": func(*rapid.T) {
				if j := l.next; j != nil {
					l.next = j.member.newer
					execute(j)
				}
			},
			"execute any": func(t *rapid.T) {
				if len(jobs) > 0 {
					execute(rapid.SampledFrom(jobs).Draw(t, "job"))
				}
			},
			"remove": func(t *rapid.T) {
				if len(jobs) == 0 {
					return
				}
				i := rapid.IntRange(0, len(jobs)-1).Draw(t, "index")
				l.remove(jobs[i])
				jobs = slices.Delete(jobs, i, i+1)
			},
			"": func(*rapid.T) {
				require.NoError(t, l.check())
				require.True(t, slices.Equal(jobs, slices.Collect(l.all())))
				if l.next == nil {
					for _, j := range jobs {
						require.Empty(t, want[j], "job %d has orders left", j.id)
					}
				}
			},
		})
	})
}

func TestDamagedOrderListIsReported(t *testing.T) {
	var l orderList
	a, b := &job{id: 1}, &job{id: 2}
	l.add(a)
	l.add(b)
	require.NoError(t, l.check())
	b.member.older = nil
	require.Error(t, l.check())
	b.member.older = a
	l.newest = a
	require.Error(t, l.check())
	l.newest = b
	l.given++
	require.Error(t, l.check())
}

// all returns the jobs, the oldest first.
func (l *orderList) all() iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for j := l.oldest; j != nil && yield(j); j = j.member.newer {
		}
	}
}

// check returns an error if an invariant is violated.
func (l *orderList) check() error {
	var last *job
	for j := l.oldest; j != nil; last, j = j, j.member.newer {
		switch left := l.given - j.member.executed; {
		case j.member.older != last:
			return errors.New("a job is not linked with the previous one")
		case left > 0 && l.next == nil || int64(left) > int64(len(l.open)):
			return errors.New("a job has not executed its orders, and will not")
		}
	}
	if last != l.newest {
		return errors.New("the newest job is not the last one")
	}
	return nil
}
