package trace

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/scoring"
)

// Compress returns the weights under which a replay at a speed decides as the
// given ones do in the trace's own time: everything per second is multiplied,
// so that 64 s of the trace stay worth a unit of priority, and the cap is
// divided, to a whole millisecond. Speed is at least 1. The error says that the
// weights would leave their range.
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
