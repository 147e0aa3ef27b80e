package actor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestCheckDetectsEveryInconsistency(t *testing.T) {
	for name, damage := range map[string]func(c *Core){
		"slot without session":   func(c *Core) { c.slots[0].session = nil },
		"taken slot without job": func(c *Core) { c.slots[0].job = nil },
		"free slot with job":     func(c *Core) { c.slots[2].job = c.jobs[-2] },
		"job on another slot":    func(c *Core) { c.jobs[-1].slot = 1 },
		"job of another type":    func(c *Core) { c.jobs[-1].Type, _ = c.index.Lookup("excel") },
		"two jobs on one slot":   func(c *Core) { c.jobs[-3].slot = 0 },
		"running without slot":   func(c *Core) { c.jobs[-3].state = stateServing },
		"waiting with a slot":    func(c *Core) { c.jobs[-1].state = stateWaiting },
		"row among the requests": func(c *Core) { c.jobs[-1].mode = dispatcherd.Queued },
		"requests":               func(c *Core) { c.quotas.Requests.Add("", 1) },
		"reserved slots":         func(c *Core) { c.reserved++ },
		"jobs of a type":         func(c *Core) { c.types[0].inHand++ },
		"empty queue": func(c *Core) {
			c.types[0].demand = append(c.types[0].demand, &requestQueue{})
			c.requesting.Set(0, true)
		},
		"mark of a type":        func(c *Core) { c.requesting.Set(0, false) },
		"mark of a dirty type":  func(c *Core) { c.dirty = append(c.dirty, 1) },
		"types of the slots":    func(c *Core) { c.quotas.SlotTypes.Add("", 1) },
		"user of a slot":        func(c *Core) { c.sessions[1].user = "other" },
		"user of a type":        func(c *Core) { c.types[0].user = "other" },
		"user of a request":     func(c *Core) { c.jobs[-3].request.user = "other" },
		"position in a session": func(c *Core) { c.slots[0].at = 1 },
		"type is not dirty": func(c *Core) {
			c.types[1].demand = requestQueues{{lane: backlog.Lane{Type: 1}, requests: []*job{{id: -9}}}}
			c.requesting.Set(1, true)
		},
		"position of an alarm": func(c *Core) { c.alarms[0].alarm = 2 },
		"order of the alarms":  func(c *Core) { c.alarms[0].deadline, c.alarms[1].deadline = 2, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := smallCore(t)
			require.NoError(t, c.Check())
			damage(c)
			require.Error(t, c.Check())
		})
	}
}

// smallCore has two busy pdf slots and a free excel slot, a waiting request,
// two deadlines, and two pdf candidates.
func smallCore(t *testing.T) *Core {
	c := New(DefaultConfig())
	fx := kept(c.Step(1, Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{
		{ID: 1, Number: 0, Types: []string{"pdf"}}, {ID: 2, Number: 1, Types: []string{"pdf"}}, {ID: 3, Number: 2, Types: []string{"excel"}},
	}}, nil))
	for id := range dispatcherd.JobID(3) {
		c.Step(1, Requested{Job: -1 - id, Type: "pdf", Deadline: msDuration(1000 * int64(3-id))}, nil)
	}
	for _, e := range fx {
		if e, ok := e.(*effect.Fetch); ok {
			require.Equal(t, "pdf", e.Request.Lanes[0].Type)
			c.Step(1, Fetched{Request: e.Request, Result: contract.FetchResult{DBNow: 1000, Candidates: []contract.Candidate{
				{Lane: 0, Key: contract.Key{RunAt: 1, ID: 1}}, {Lane: 0, Key: contract.Key{RunAt: 1, ID: 2}},
			}}}, nil)
		}
	}
	require.Equal(t, 2, c.backlog.Cached())
	require.Equal(t, 1, c.quotas.Requests.Held())
	return c
}
