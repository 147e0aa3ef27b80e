package contract

import (
	"fmt"
	"math"
	"time"
)

// MaxTimeout is the longest timeout of an attempt that a row can hold.
const MaxTimeout = math.MaxInt32 * time.Millisecond

// AttemptsColumn returns the value of the column max_attempts.
func AttemptsColumn(n int) (int16, error) {
	if n < 1 || n > math.MaxInt16 {
		return 0, fmt.Errorf("max_attempts is %d, must be 1 to %d, or left out for the default", n, math.MaxInt16)
	}
	return int16(n), nil
}

// TimeoutColumn returns the value of the column timeout_ms: milliseconds, rounded
// up.
func TimeoutColumn(d time.Duration) (int32, error) {
	if d <= 0 || d > MaxTimeout {
		return 0, fmt.Errorf("its timeout is %v, must be more than 0 and at most %v, or left out for the limit of its type", d, MaxTimeout)
	}
	return int32((d-1)/time.Millisecond + 1), nil
}
