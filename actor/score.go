package actor

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// score computes the score of a job at this instant.
func (c *Core) score(mode dispatcherd.Mode, p dispatcherd.Priority, class dispatcherd.DurationClass, ageMS int64, t slotindex.TypeID) scoring.Terms {
	terms := c.cfg.Weights.Score(mode, p, ageMS, c.capacity(t))
	terms.Brevity = c.brevity(t, class)
	return terms
}

// brevity returns the term for the expected duration of the jobs of a type and class.
func (c *Core) brevity(t slotindex.TypeID, class dispatcherd.DurationClass) scoring.Milli {
	ms, known := c.expected(t, class)
	if !known {
		return 0
	}
	return c.cfg.Weights.Brevity(ms)
}

// expected returns how many milliseconds the jobs of a type and class take. It is not known while expected durations do not count, nor
// of a forgotten type, which only slots support that are drained.
func (c *Core) expected(t slotindex.TypeID, class dispatcherd.DurationClass) (ms int64, known bool) {
	d := c.types[t].durations
	if d == nil {
		return 0, false
	}
	return c.durations.Expected(d, class, c.now), true
}
