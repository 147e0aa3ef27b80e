package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A claim does not return large payloads: Postgres would need seconds for a thousand of
// them, and claims of other types would wait. Such a job keeps the state that it has
// while its claim is in flight until its payload is loaded. So each event that concerns
// a claim in flight concerns it in the same way. Its claim counts as answered.

// load asks for the payloads of rows that a claim took. Rows that must not run here are
// released at once.
func (c *Core) load(rows []contract.Won) {
	var wanted []contract.Won
	for i := range rows {
		w := &rows[i]
		j := c.jobs.Get(w.ID)
		if !j.claimInFlight() || c.isUnwanted(j) || c.hasMoved(j, w) {
			c.won(w)
			continue
		}
		j.attempt, j.row.loading = w.Attempt, true
		c.claims.loading = append(c.claims.loading, j)
		wanted = append(wanted, *w)
	}
	if len(wanted) > 0 {
		c.emit(&effect.Load{Request: &contract.LoadRequest{Rows: wanted}})
	}
}

// handleLoaded continues as the claim would have done with the payloads.
func (c *Core) handleLoaded(ev event.Loaded) {
	for i := range ev.Result.Won {
		w := &ev.Result.Won[i]
		if j := c.loaded(w.ID); j != nil {
			c.won(w)
		}
	}
	for _, id := range ev.Result.Lost {
		if j := c.loaded(id); j != nil {
			c.notWon(j)
		}
	}
	c.claims.loading = slices.DeleteFunc(c.claims.loading, func(j *job) bool { return !j.row.loading })
}

// loaded returns the job whose payload was loaded. It returns nil if the job does not
// wait for it.
func (c *Core) loaded(id dispatcherd.JobID) *job {
	j := c.jobs.Get(id)
	if !j.claimInFlight() || !j.row.loading {
		return nil
	}
	j.row.loading = false
	return j
}
