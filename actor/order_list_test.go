package actor

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// newOrderCore returns a Core of which each step lets one job execute its orders.
func newOrderCore() *Core {
	c := &Core{index: slotindex.New(), jobs: map[dispatcherd.JobID]*job{}}
	c.cfg.Limits.StepWork = 1
	return c
}

// take takes a job into hand that has no type.
func (c *Core) take(id dispatcherd.JobID) *job {
	c.jobs[id] = &job{id: id}
	c.orders.add(c.jobs[id])
	return c.jobs[id]
}

// TestOrdersAgreeWithTheNaiveReference compares the orders with those of jobs that each have a queue of their own.
func TestOrdersAgreeWithTheNaiveReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newOrderCore()
		var jobs []*job
		last := dispatcherd.JobID(0)
		given := 0
		want := map[*job][]int{} // orders that a job must still execute
		t.Repeat(map[string]func(*rapid.T){
			"take": func(*rapid.T) {
				last++
				jobs = append(jobs, c.take(last))
			},
			"give": func(*rapid.T) {
				given++
				number := given
				for _, j := range jobs {
					want[j] = append(want[j], number)
				}
				c.orderAll(func(_ *Core, j *job) {
					require.NotEmpty(t, want[j], "job %d got order %d", j.id, number)
					require.Equal(t, want[j][0], number)
					want[j] = want[j][1:]
				})
			},
			"execute next": func(*rapid.T) { c.executeOrders() },
			"execute any": func(t *rapid.T) {
				if len(jobs) > 0 {
					j := rapid.SampledFrom(jobs).Draw(t, "job")
					c.execute(j)
					require.Empty(t, want[j])
				}
			},
			"forget": func(t *rapid.T) {
				if len(jobs) == 0 {
					return
				}
				i := rapid.IntRange(0, len(jobs)-1).Draw(t, "index")
				delete(c.jobs, jobs[i].id)
				c.orders.remove(jobs[i])
				jobs = slices.Delete(jobs, i, i+1)
			},
			"": func(*rapid.T) {
				require.NoError(t, c.checkOrders())
				if c.orders.left == 0 {
					for _, j := range jobs {
						require.Empty(t, want[j], "job %d has orders left", j.id)
					}
				}
			},
		})
	})
}

func TestDamagedOrdersAreReported(t *testing.T) {
	c := newOrderCore()
	a, b := c.take(1), c.take(2)
	require.NoError(t, c.checkOrders())
	b.place = 0
	require.Error(t, c.checkOrders())
	b.place = 1
	a.executed--
	require.Error(t, c.checkOrders())
	c.orders.left = 1
	require.Error(t, c.checkOrders())
	c.orders.open = []order{nil}
	require.NoError(t, c.checkOrders())
	delete(c.jobs, 2)
	require.Error(t, c.checkOrders())
}

// checkOrders returns an error if an invariant is violated.
func (c *Core) checkOrders() error {
	for i, j := range c.orders.jobs {
		left := c.orders.given - j.executed
		switch {
		case int(j.place) != i || c.jobs[j.id] != j:
			return errors.New("a job is in the list of the jobs in hand, but does not know its place or is not in the table")
		case int64(left) > int64(len(c.orders.open)) || left > 0 && i >= c.orders.left:
			return errors.New("a job has not executed its orders, and will not")
		}
	}
	if len(c.orders.jobs) != len(c.jobs) {
		return errors.New("a job in hand is not in the list of the jobs in hand")
	}
	return nil
}
