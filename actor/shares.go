package actor

import (
	"reflect"

	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// userQuotas are what the users hold of each bound.
type userQuotas struct {
	Slots     *quota.Quota `metric:"slots"`            // registered slots, without retired ones
	SlotTypes *quota.Quota `metric:"slot_types"`       // types, added up over the registered slots
	Types     *quota.Quota `metric:"types"`            // known types, each for the user that made it known
	Requests  *quota.Quota `metric:"requests_waiting"` // waiting on-demand requests
	Spawns    *quota.Quota `metric:"spawns"`           // spawns without an answer
	Logs      *quota.Quota `metric:"job_log_bytes"`    // bytes of logs
	Offers    *quota.Quota `metric:"resume_offers"`    // undecided resume offers
}

// newUserQuotas returns the quotas of the limits.
func newUserQuotas(l Limits) userQuotas {
	return userQuotas{
		quota.New(l.Slots), quota.New(l.SlotTypes), quota.New(l.Types), quota.New(l.Requests), quota.New(l.OpenSpawns), quota.New(MaxLogs),
		quota.New(2 * l.Slots),
	}
}

// largest returns what the user with the largest share holds of each bound.
func (q *userQuotas) largest() map[string]int {
	shares := map[string]int{}
	for bound, q := range reflect.ValueOf(*q).Fields() {
		_, shares[bound.Tag.Get("metric")] = q.Interface().(*quota.Quota).Largest()
	}
	return shares
}
