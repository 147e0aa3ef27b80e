package actor

import (
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// userQuotas are what the users hold of each bound.
type userQuotas struct {
	Slots     *quota.Quota // registered slots, without retired ones
	SlotTypes *quota.Quota // types, added up over the registered slots
	Types     *quota.Quota // known types, each for the user that made it known
	Requests  *quota.Quota // waiting on-demand requests
	Spawns    *quota.Quota // spawns without an answer
	Logs      *quota.Quota // bytes of logs
	Offers    *quota.Quota // undecided resume offers
}

// newUserQuotas returns the quotas of the limits.
func newUserQuotas(l Limits) userQuotas {
	return userQuotas{
		quota.New(l.Slots), quota.New(l.SlotTypes), quota.New(l.Types), quota.New(l.Requests), quota.New(l.OpenSpawns), quota.New(MaxLogs),
		quota.New(2 * l.Slots),
	}
}

// LargestShares contains, for each bound, what the user with the largest share holds.
type LargestShares struct {
	Slots     int `metric:"slots"`
	SlotTypes int `metric:"slot_types"`
	Types     int `metric:"types"`
	Requests  int `metric:"requests_waiting"`
	Spawns    int `metric:"spawns"`
	Logs      int `metric:"job_log_bytes"`
	Offers    int `metric:"resume_offers"`
}

// largest returns the largest shares.
func (q *userQuotas) largest() (l LargestShares) {
	_, l.Slots = q.Slots.Largest()
	_, l.SlotTypes = q.SlotTypes.Largest()
	_, l.Types = q.Types.Largest()
	_, l.Requests = q.Requests.Largest()
	_, l.Spawns = q.Spawns.Largest()
	_, l.Logs = q.Logs.Largest()
	_, l.Offers = q.Offers.Largest()
	return l
}
