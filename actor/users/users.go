// Package users contains the bounds of the core that users share.
package users

import (
	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// Quotas are what the users hold of each bound.
type Quotas struct {
	Slots     *quota.Quota // registered slots, without retired ones
	SlotTypes *quota.Quota // types, added up over the registered slots
	Types     *quota.Quota // known types, each for the user that made it known
	Requests  *quota.Quota // waiting on-demand requests
}

// New returns the quotas of the limits.
func New(l config.Limits) Quotas {
	return Quotas{quota.New(l.Slots), quota.New(l.SlotTypes), quota.New(l.Types), quota.New(l.Requests)}
}

// Largest contains, for each bound, what the user with the largest share holds.
type Largest struct{ Slots, SlotTypes, Types, Requests int }

// Largest returns the largest shares.
func (q *Quotas) Largest() (l Largest) {
	_, l.Slots = q.Slots.Largest()
	_, l.SlotTypes = q.SlotTypes.Largest()
	_, l.Types = q.Types.Largest()
	_, l.Requests = q.Requests.Largest()
	return l
}
