package trace

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/scoring"
)

// Compress returns weights for a replay that is speed times as fast as the
// trace. With these weights, the replay makes the decisions that w makes in the
// trace's own time. Compress multiplies points per second by the speed, so that
// a unit of priority remains worth 64 s of the trace. It divides the age cap by
// the speed, rounded to a millisecond. speed must be at least 1. Compress
// returns an error if a weight leaves its range.
func Compress(w scoring.Weights, speed float64) (scoring.Weights, error) {
	c := w
	c.Ageing = int64(float64(w.Ageing)*speed + 0.5)
	c.OnDemandAgeing = int64(float64(w.OnDemandAgeing)*speed + 0.5)
	if w.OnDemandCap != scoring.NoCap {
		c.OnDemandCap = time.Duration(float64(w.OnDemandCap) / speed).Round(time.Millisecond)
	}
	if err := c.Validate(); err != nil {
		return scoring.Weights{}, fmt.Errorf("compress weights by %g: %w; choose a lower speed", speed, err)
	}
	return c, nil
}
