package trace

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/scoring"
)

// Advice compares the waits of a trace with and without --duration-window.
type Advice struct {
	Trace          string  `json:"trace"`
	Jobs           int     `json:"jobs"`
	Runs           []Trial `json:"runs"`
	Recommendation string  `json:"recommendation"`
}

// Trial is one run of a trace. Times are seconds of the trace.
type Trial struct {
	Rule   string  `json:"rule"`
	Mean   float64 `json:"mean_seconds"`
	P95    float64 `json:"p95_seconds"`
	P99    float64 `json:"p99_seconds"`
	Max    float64 `json:"max_seconds"`
	Window float64 `json:"overtaking_window_seconds"` // W
}

// likelyOctaves is the error of the expected durations of a producer that knows its jobs within a factor of four.
const likelyOctaves = 2

// The gain of the mean from which Advise recommends a setting, as a share and in seconds, and the loss of the 99th percentile that it accepts.
const (
	worthwhile = 0.95
	least      = 0.5 // seconds
	tolerable  = 1.1
)

// Advise runs a trace without expected durations in the score, with those of its jobs, with none, and with such that
// are right within a factor of four.
func Advise(t *Trace, w scoring.Weights, window time.Duration) (Advice, error) {
	a := Advice{Trace: t.Name, Jobs: len(t.Jobs)}
	run := func(rule string, t *Trace, window time.Duration) (Trial, error) {
		w.DurationWindow = window
		schedule, err := Simulate(t, w, nil)
		if err != nil {
			return Trial{}, err
		}
		g := waits(t, firsts(t.Executions(schedule)))[0]
		bound, _ := w.Window()
		trial := Trial{Rule: rule, Mean: g.Mean, P95: g.P95, P99: g.P99, Max: g.Max, Window: bound.Seconds()}
		a.Runs = append(a.Runs, trial)
		return trial, nil
	}
	off, err := run("off", t, 0)
	if err != nil {
		return a, err
	}
	none, err := run("no expected durations", t.WithoutHints(), window)
	if err != nil {
		return a, err
	}
	likely, err := run("right within a factor of four", t.Hint(1, likelyOctaves, 0), window)
	if err != nil {
		return a, err
	}
	given := none
	if t.hinted() {
		if given, err = run("as given", t, window); err != nil {
			return a, err
		}
	}
	a.Recommendation = recommend(window, off, given, likely, t.hinted())
	return a, nil
}

// helps reports whether a run is worth its setting.
func (t Trial) helps(off Trial) bool {
	return t.Mean <= min(worthwhile*off.Mean, off.Mean-least) && t.P99 <= tolerable*off.P99
}

func recommend(window time.Duration, off, given, likely Trial, hinted bool) string {
	setting := fmt.Sprintf("--duration-window %v", window)
	gain := func(t Trial) string {
		return fmt.Sprintf("the mean wait falls from %.1f s to %.1f s, the longest changes from %.0f s to %.0f s, and W from %.1f h to %.1f h",
			off.Mean, t.Mean, off.Max, t.Max, off.Window/3600, t.Window/3600)
	}
	switch {
	case hinted && given.helps(off):
		return fmt.Sprintf("Set %s: with the expected durations as given %s.", setting, gain(given))
	case hinted && likely.helps(off):
		return fmt.Sprintf("Leave it off, or improve the expected durations: as given they do not help; if they are right within a factor of four, %s with %s.", gain(likely), setting)
	case given.helps(off):
		return fmt.Sprintf("Set %s: also without expected durations %s.", setting, gain(given))
	case likely.helps(off):
		return fmt.Sprintf("Let producers give expected_ms, and set %s: if it is right within a factor of four, %s.", setting, gain(likely))
	}
	return "Leave it off: expected durations hardly change the waits of this workload."
}
