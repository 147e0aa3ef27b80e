package main

import (
	"slices"
	"time"
)

// densest returns the most starts in any window, which includes its beginning and not its end.
func densest(starts []time.Time) (most int) {
	slices.SortFunc(starts, time.Time.Compare)
	first := 0
	for i, at := range starts {
		for at.Sub(starts[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// mean returns the rate of starts between the first and the last one.
func mean(starts []time.Time) float64 {
	if len(starts) < 2 {
		return 0
	}
	slices.SortFunc(starts, time.Time.Compare)
	return float64(len(starts)-1) / starts[len(starts)-1].Sub(starts[0]).Seconds()
}

// startsOf returns when all attempts started.
func startsOf(jobs []job) (starts []time.Time) {
	for i := range jobs {
		for _, r := range jobs[i].runs {
			starts = append(starts, r.from)
		}
	}
	return starts
}
