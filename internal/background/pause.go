package background

import (
	"context"
	"time"
)

// Pause waits for d. It returns false if ctx ended before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
