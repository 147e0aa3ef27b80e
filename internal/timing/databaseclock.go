package timing

import "time"

// DatabaseClock estimates the database clock between two reads with the monotonic clock of this process.
type DatabaseClock struct {
	set  bool
	at   time.Time // local
	then time.Time // database clock at that time
}

// jumpFrom is by how much a clock that was set differs at least.
const jumpFrom = time.Second

// Read updates the estimate after a read of the database clock. It returns by how much that clock was set, or 0.
func (c *DatabaseClock) Read(database, local time.Time) (by time.Duration) {
	if c.set {
		if by = database.Sub(c.Estimate(local)); by.Abs() < jumpFrom {
			by = 0
		}
	}
	*c = DatabaseClock{true, local, database}
	return by
}

// Estimate returns the database clock at a local time.
func (c *DatabaseClock) Estimate(local time.Time) time.Time { return c.then.Add(local.Sub(c.at)) }
