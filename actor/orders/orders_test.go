package orders

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type job struct {
	id     int
	member Member[*job]
	want   []int // orders that it must still execute, according to the naive reference
}

// TestListAgreesWithTheNaiveReference compares a list with one in which each job has its
// own queue of orders.
func TestListAgreesWithTheNaiveReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l List[*job, int]
		var jobs []*job
		ids, orders := 0, 0
		execute := func(j *job) {
			for {
				order, ok := l.Take(&j.member)
				if !ok {
					require.Empty(t, j.want)
					return
				}
				require.NotEmpty(t, j.want, "job %d got order %d", j.id, order)
				require.Equal(t, j.want[0], order)
				j.want = j.want[1:]
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				ids++
				j := &job{id: ids}
				l.Add(j, &j.member)
				jobs = append(jobs, j)
			},
			"give": func(*rapid.T) {
				orders++
				l.Give(orders)
				for _, j := range jobs {
					j.want = append(j.want, orders)
				}
			},
			"execute next": func(*rapid.T) {
				if l.Pending() {
					execute(l.Next())
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
				l.Remove(&jobs[i].member)
				jobs = slices.Delete(jobs, i, i+1)
			},
			"": func(*rapid.T) {
				require.NoError(t, l.Check())
				require.True(t, slices.Equal(jobs, slices.Collect(l.All())))
				if !l.Pending() {
					for _, j := range jobs {
						require.Empty(t, j.want, "job %d has orders left", j.id)
					}
				}
			},
		})
	})
}

func TestDamagedListIsReported(t *testing.T) {
	var l List[*job, int]
	a, b := &job{id: 1}, &job{id: 2}
	l.Add(a, &a.member)
	l.Add(b, &b.member)
	require.NoError(t, l.Check())
	b.member.older = nil
	require.Error(t, l.Check())
	b.member.older = &a.member
	l.newest = &a.member
	require.Error(t, l.Check())
	l.newest = &b.member
	l.given++
	require.Error(t, l.Check())
}
