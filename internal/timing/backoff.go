package timing

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff spaces repetitions: repetition n waits Base·2ⁿ, at most Max. The second
// half of each wait is random, so that many waits that began together spread out.
type Backoff struct {
	Base, Max time.Duration
}

// Delay returns the wait before repetition n = 0, 1, 2 …, in whole milliseconds,
// between half and all of min(Base·2ⁿ, Max). It cannot overflow, whatever n is.
func (b Backoff) Delay(n int, rng *rand.Rand) time.Duration {
	p := b.Policy()
	return p.Delay(n, rng)
}

// Validate returns an error that contains name if a value is not allowed.
func (b Backoff) Validate(name string) error {
	if b.Base < time.Millisecond || b.Max < b.Base || b.Max > 24*time.Hour {
		return fmt.Errorf("%s-base is %v and %s-max %v, must be 1ms ≤ base ≤ max ≤ 24h", name, b.Base, name, b.Max)
	}
	return nil
}
