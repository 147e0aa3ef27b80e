package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// asidePause is the time for which a row is not claimed after Postgres refused to claim
// it. It doubles with each refusal.
var asidePause = timing.Backoff{Base: time.Second, Max: 5 * time.Minute}

// asideMemory is how long a row is remembered after its pause, so that its next pause
// is longer.
const asideMemory = 10 * time.Minute

// MaxAside bounds the rows that are set aside. Further rows are claimed again when a
// scan finds them.
const MaxAside = 1000

// asideRows are the rows that Postgres refused to claim although it claimed others.
// Their candidates are dropped until the pause ends. A full scan finds them again.
type asideRows map[dispatcherd.JobID]asideRow

type asideRow struct {
	until   timing.Instant
	refused int // claims in a row
	reason  string
}

// setAside makes rows wait that Postgres refused to claim.
func (c *Core) setAside(rows []contract.Unclaimable) {
	if len(rows) == 0 {
		return
	}
	if c.claims.aside == nil {
		c.claims.aside = asideRows{}
	}
	c.claims.aside.forget(c.now)
	for _, u := range rows {
		row, known := c.claims.aside[u.ID]
		if !known && len(c.claims.aside) >= MaxAside {
			continue
		}
		c.stats.SetAside++
		row.until, row.reason = c.now.After(asidePause.Delay(row.refused, c.rng)), u.Reason
		row.refused++
		c.claims.aside[u.ID] = row
	}
}

// forget removes rows that were not claimed again after their pause.
func (a asideRows) forget(now timing.Instant) {
	for id, row := range a { // order-free: each row alone
		if now > row.until.After(asideMemory) {
			delete(a, id)
		}
	}
}

// isAside returns why a row is not to be claimed now.
func (c *Core) isAside(id dispatcherd.JobID) (reason string, aside bool) {
	if len(c.claims.aside) == 0 {
		return "", false
	}
	if row := c.claims.aside[id]; c.now < row.until {
		return row.reason, true
	}
	return "", false
}

// notAside forgets a row that was claimed after all.
func (c *Core) notAside(id dispatcherd.JobID) {
	if len(c.claims.aside) > 0 {
		delete(c.claims.aside, id)
	}
}
