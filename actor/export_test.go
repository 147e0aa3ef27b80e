package actor

import (
	"maps"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Slots lists all slots in the order of their ids.
func (c *Core) Slots() []contract.Slot { return ListSlots("", c) }

// Types lists the known types.
func (c *Core) Types() []contract.Type { return ListTypes(c) }

// Explain explains a job.
func (c *Core) Explain(q Inquiry) Explanation { return Explain(q, c) }

// RankOfRequest returns the rank of a request.
func (c *Core) RankOfRequest(id dispatcherd.JobID) (rank, waits int, ok bool) {
	return RankOfRequest(id, c)
}

// sessionIDs returns the ids of the open sessions in ascending order.
func (c *Core) sessionIDs() []dispatcherd.SessionID { return slices.Sorted(maps.Keys(c.sessions)) }

const priorities = int(dispatcherd.MaxPriority) + 1
