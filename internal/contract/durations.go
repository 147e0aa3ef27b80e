package contract

import "github.com/dispatcherd/dispatcherd"

// Durations is what dispatchers have learned of the durations of the jobs of a type and duration class: a
// decayed sum of logarithms, see scoring.Estimate.
type Durations struct {
	Type  string
	Class dispatcherd.DurationClass
	N, S  int64
}
