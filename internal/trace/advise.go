package trace

import (
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
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
	Setting float64 `json:"duration_window_seconds"` // --duration-window; 0 = off
	Rule    string  `json:"rule"`
	Mean    float64 `json:"mean_seconds"`
	P95     float64 `json:"p95_seconds"`
	P99     float64 `json:"p99_seconds"`
	Max     float64 `json:"max_seconds"`
	Window  float64 `json:"overtaking_window_seconds"` // W

	// Groups are the waits by mode and priority. The rule lets short queued jobs pass requests and jobs of high priority.
	Groups []WaitGroup `json:"groups"`
}

// OnDemand returns the waits of the on-demand requests, or nil if there are none.
func (t *Trial) OnDemand() *WaitGroup {
	for i := range t.Groups {
		if t.Groups[i].By == "mode" && t.Groups[i].Value == dispatcherd.OnDemand.String() {
			return &t.Groups[i]
		}
	}
	return nil
}

// The rules of a Trial.
const (
	ruleOff    = "off"
	ruleNone   = "no expected durations"
	ruleGiven  = "as given"
	ruleLikely = "right within a factor of four"
)

// likelyOctaves is the error of the expected durations of a producer that knows its jobs within a factor of four.
const likelyOctaves = 2

// The gain of the mean from which Advise recommends a setting, as a share and in seconds, the loss of the 99th percentile that it accepts,
// and how much longer than with the best setting the mean may be with a smaller one.
const (
	worthwhile = 0.95
	least      = 0.5 // seconds
	tolerable  = 1.1
	aboutBest  = 1.02
)

// AdvisedWindows are the settings that trace advise compares, in ascending order.
var AdvisedWindows = []time.Duration{30 * time.Minute, time.Hour, 4 * time.Hour, 24 * time.Hour}

// Advise runs a trace without expected durations in the score, and for each window, in ascending order, with those of its jobs, with
// none, and with such that are right within a factor of four.
func Advise(t *Trace, w scoring.Weights, windows []time.Duration) (Advice, error) {
	a := Advice{Trace: t.Name, Jobs: len(t.Jobs)}
	run := func(rule string, t *Trace, window time.Duration) error {
		w.DurationWindow = window
		schedule, err := Simulate(t, w, nil)
		if err != nil {
			return err
		}
		groups := waits(t, firsts(t.Executions(schedule)))
		g := groups[0]
		groups = slices.DeleteFunc(groups, func(g WaitGroup) bool { return g.By != "mode" && g.By != "priority" })
		bound, _ := w.Window()
		a.Runs = append(a.Runs, Trial{
			Setting: window.Seconds(), Rule: rule, Mean: g.Mean, P95: g.P95, P99: g.P99, Max: g.Max, Window: bound.Seconds(), Groups: groups,
		})
		return nil
	}
	if err := run(ruleOff, t, 0); err != nil {
		return a, err
	}
	none, likely := t.WithoutHints(), t.Hint(1, likelyOctaves, 0)
	for _, window := range windows {
		err := run(ruleNone, none, window)
		if err == nil {
			err = run(ruleLikely, likely, window)
		}
		if err == nil && t.hinted() {
			err = run(ruleGiven, t, window)
		}
		if err != nil {
			return a, err
		}
	}
	a.Recommendation = a.recommend(t.hinted())
	return a, nil
}

// best returns the trial of a rule with the smallest window whose mean is about as short as the shortest one, or nil if none is worth
// its setting.
func (a *Advice) best(rule string) (best *Trial) {
	off := a.Runs[0]
	helps := func(t *Trial) bool {
		return t.Rule == rule && t.Mean <= min(worthwhile*off.Mean, off.Mean-least) && t.P99 <= tolerable*off.P99
	}
	shortest := off.Mean
	for i := range a.Runs {
		if helps(&a.Runs[i]) {
			shortest = min(shortest, a.Runs[i].Mean)
		}
	}
	for i := range a.Runs {
		if t := &a.Runs[i]; helps(t) && t.Mean <= aboutBest*shortest {
			return t
		}
	}
	return nil
}

func (a *Advice) recommend(hinted bool) string {
	off, given, none, likely := a.Runs[0], a.best(ruleGiven), a.best(ruleNone), a.best(ruleLikely)
	setting := func(t *Trial) string {
		return fmt.Sprintf("--duration-window %v", time.Duration(t.Setting*float64(time.Second)))
	}
	gain := func(t *Trial) string {
		text := fmt.Sprintf("the mean wait falls from %.1f s to %.1f s, the longest changes from %.0f s to %.0f s, and W from %.1f h to %.1f h",
			off.Mean, t.Mean, off.Max, t.Max, off.Window/3600, t.Window/3600)
		if before, after := off.OnDemand(), t.OnDemand(); before != nil && after != nil {
			text += fmt.Sprintf("; on-demand requests wait %.1f s instead of %.1f s, at most %.0f s instead of %.0f s",
				after.Mean, before.Mean, after.Max, before.Max)
		}
		return text
	}
	switch {
	case given != nil:
		return fmt.Sprintf("Set %s: with the expected durations as given %s.", setting(given), gain(given))
	case hinted && likely != nil:
		return fmt.Sprintf(
			"Leave it off, or improve the expected durations: as given they do not help; with %s, if they are right within a factor of four, %s.",
			setting(likely),
			gain(likely),
		)
	case !hinted && none != nil:
		return fmt.Sprintf("Set %s: also without expected durations %s.", setting(none), gain(none))
	case likely != nil:
		return fmt.Sprintf("Let producers give expected_ms, and set %s: if the values are right within a factor of four, %s.",
			setting(likely), gain(likely))
	}
	return "Leave it off: expected durations hardly change the waits of this workload."
}
