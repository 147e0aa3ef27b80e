package timing

import "time"

// Instant is local monotonic time in milliseconds from an arbitrary zero. It is
// never a wall clock.
type Instant int64

// Never is later than every Instant that occurs.
const Never Instant = 1<<63 - 1

// After returns the instant that is d later, in whole milliseconds.
func (t Instant) After(d time.Duration) Instant { return t + Instant(d.Milliseconds()) }
