package backlog

import (
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// databaseClock relates the database clock to instants. Every answer of a fetch
// updates the relation.
type databaseClock struct {
	offset int64 // database clock minus Instant, milliseconds
	known  bool  // false before the first answer
}

func (c *databaseClock) set(dbNow int64, now timing.Instant) {
	c.offset, c.known = floorMS(dbNow)-int64(now), true
}

// instant returns the first instant after a time of the database clock. The time is
// in milliseconds.
func (c *databaseClock) instant(ms int64) timing.Instant {
	if !c.known {
		return timing.Never
	}
	return timing.Instant(ms-c.offset) + 1
}

// passed reports whether a time of the database clock in milliseconds has passed; 0 = there is none.
func (b *Backlog) passed(ms int64) bool { return ms != 0 && b.clock.known && b.DBNow() > ms }

// ClockKnown reports whether the database clock is known.
func (b *Backlog) ClockKnown() bool { return b.clock.known }

// DBNow returns the database clock in milliseconds, as far as it is known.
func (b *Backlog) DBNow() int64 { return int64(b.now) + b.clock.offset }

// AgeMS returns the age of a row in milliseconds. The age is negative before the
// row is due. It may also be negative while clocks disagree.
func (b *Backlog) AgeMS(k contract.Key) int64 { return b.DBNow() - floorMS(k.RunAt) }

// floorMS converts microseconds to whole milliseconds, rounding down.
func floorMS(us int64) int64 {
	if us < 0 {
		return -((-us + 999) / 1000)
	}
	return us / 1000
}
