package schedule

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

var rewrite = flag.Bool("rewrite", false, "write what was decided into the scenario files; inspect the diff")

// TestOverlapScenarios runs the scenarios in testdata/overlap. A scenario is a list of blocks: sentences after #, a command, ----, and
// the output. The commands are
//   - schedule: sets the facts: overlap, open, queued, next, version, and the words cancels, paused, locked and deleted
//   - make: requests ticks at minutes; MINUTE*N stands for N missed occasions. Words: overlap=POLICY, version=N, forced
//   - start: asks whether a queued tick starts
//   - end: one run ends
func TestOverlapScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/overlap/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := playOverlap(t, string(text))
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(text), got)
		})
	}
}

// playOverlap runs a scenario and returns it with the actual outputs.
func playOverlap(t *testing.T, text string) string {
	w := &overlapWorld{t: t}
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		for line := range strings.SplitSeq(block, "\n") {
			if line == "----" {
				break
			}
			out.WriteString(line + "\n")
			if !strings.HasPrefix(line, "#") {
				out.WriteString("----\n" + w.command(strings.Fields(line)))
			}
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// overlapWorld is the state of one schedule, to which decisions are applied.
type overlapWorld struct {
	t       *testing.T
	deleted bool
	facts   Facts
	queue   []string
	made    map[string]bool
}

// command executes a command and returns its output.
func (w *overlapWorld) command(words []string) string {
	switch words[0] {
	case "schedule":
		return w.schedule(words[1:])
	case "end":
		w.facts.Open--
		return ""
	}
	r := Request{}
	version := int64(0)
	for _, word := range words[1:] {
		name, value, found := strings.Cut(word, "=")
		switch {
		case word == "forced":
			r.Forced = true
		case found && name == "overlap":
			r.Overlap = value
		case found:
			version = w.number(value)
		default:
			minute, missed, _ := strings.Cut(word, "*")
			at := minuteOf(int(w.number(minute)))
			tick := Tick{Version: version, Occasion: minute, Planned: at, RunAt: at}
			if missed != "" {
				tick.Missed = int(w.number(missed))
			}
			if r.Overlap != "" || r.Forced { // on request, so the occasion does not move the high-water mark
				tick.Planned = time.Time{}
			}
			r.Ticks = append(r.Ticks, tick)
		}
	}
	return w.decide(&r)
}

// minuteOf returns an instant of the scenarios.
func minuteOf(n int) time.Time {
	return time.Date(2026, 3, 1, 0, n, 0, 0, time.UTC)
}

func (w *overlapWorld) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(w.t, err)
	return n
}

// schedule sets facts.
func (w *overlapWorld) schedule(words []string) string {
	if w.made == nil {
		w.made = map[string]bool{}
	}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "overlap":
			w.facts.Overlap = value
		case "open":
			w.facts.Open = int(w.number(value))
		case "queued":
			w.queue = nil
			for i := range w.number(value) {
				w.queue = append(w.queue, fmt.Sprint("old-", i+1))
			}
		case "version":
			w.facts.Version = w.number(value)
		case "cancels":
			w.facts.Cancels = value != "no"
		case "paused":
			w.facts.Paused = value != "no"
		case "locked":
			w.facts.Locked = value != "no"
		case "deleted":
			w.deleted = true
		}
	}
	return ""
}

// decide prints a decision and applies it.
func (w *overlapWorld) decide(r *Request) string {
	w.facts.Queued, w.facts.Next, w.facts.Made = min(len(w.queue), MaxQueued), "", w.made
	if len(w.queue) > 0 {
		w.facts.Next = w.queue[0]
	}
	f := &w.facts
	if w.deleted {
		f = nil
	}
	d := Decide(f, r)
	var out strings.Builder
	if d.Replace {
		fmt.Fprintf(&out, "skip %s: %s\n", strings.Join(w.queue, " "), ReplacedReason)
		w.queue = nil
	}
	if d.Cancel {
		fmt.Fprintf(&out, "cancel %d\n", w.facts.Open)
	}
	if d.Start != "" {
		out.WriteString("start " + d.Start + "\n")
		w.queue = w.queue[1:]
		w.facts.Open++
	}
	for i, t := range d.Ticks {
		out.WriteString(r.Ticks[i].Occasion + " " + t.Outcome)
		if t.Reason != "" {
			out.WriteString(": " + t.Reason)
		}
		out.WriteString("\n")
		if t.Outcome == contract.TickExists || t.Outcome == contract.TickChanged || t.Outcome == contract.TickLocked {
			continue
		}
		w.made[r.Ticks[i].Occasion] = true
		if at := r.Ticks[i].Planned; !at.IsZero() {
			w.facts.Handled = &at
		}
		switch t.Outcome {
		case contract.TickRun:
			w.facts.Open++
		case contract.TickQueued:
			w.queue = append(w.queue, r.Ticks[i].Occasion)
			if len(w.queue) == 1 {
				w.facts.Cancels = t.Reason != ""
			}
		}
	}
	if d.Waiting {
		out.WriteString("ticks wait\n")
	}
	return out.String()
}

// naiveSchedule is a reference: it handles one tick after the other, as if each were the only one of its request.
type naiveSchedule struct {
	overlap string
	paused  bool
	runs    int
	queue   []string
	cancels map[string]bool // queued ticks that ask to cancel the runs
	made    map[string]string
	handled time.Time
}

// start starts the first queued tick if no run is open.
func (n *naiveSchedule) start() {
	if n.runs == 0 && len(n.queue) > 0 && !n.paused {
		n.made[n.queue[0]] = contract.TickRun
		n.queue, n.runs = n.queue[1:], 1
	}
}

// make makes the ticks of a request. Of those with cancel_other the last one counts.
func (n *naiveSchedule) make(r *Request) (outcomes []string) {
	overlap := n.overlap
	if r.Overlap != "" {
		overlap = r.Overlap
	}
	changed := func(t *Tick) bool { return n.paused && !r.Forced || t.Version > 1 }
	var counts []int
	skipped := map[string]bool{}
	for i := range r.Ticks {
		t := &r.Ticks[i]
		if _, found := n.made[t.Occasion]; !found && !skipped[t.Occasion] && !changed(t) && t.Missed == 0 &&
			(t.Planned.IsZero() || t.Planned.After(n.handled)) {
			counts, skipped[t.Occasion] = append(counts, i), true
		}
	}
	if overlap == contract.CancelOther && len(counts) > 0 {
		for _, q := range n.queue {
			n.made[q] = contract.TickSkipped
		}
		n.queue = nil
	}
	n.start()
	before := n.handled
	for i := range r.Ticks {
		t := &r.Ticks[i]
		_, found := n.made[t.Occasion]
		var outcome string
		switch {
		case changed(t):
			outcome = contract.TickChanged
		case found, !t.Planned.IsZero() && !t.Planned.After(before):
			outcome = contract.TickExists
		case t.Missed > 0:
			outcome = contract.TickMissed
		default:
			outcome = n.one(overlap, i == counts[len(counts)-1])
		}
		outcomes = append(outcomes, outcome)
		if outcome == contract.TickChanged || outcome == contract.TickExists {
			continue
		}
		n.made[t.Occasion] = outcome
		if t.Planned.After(n.handled) {
			n.handled = t.Planned
		}
		switch outcome {
		case contract.TickRun:
			n.runs++
		case contract.TickQueued:
			n.queue = append(n.queue, t.Occasion)
			n.cancels[t.Occasion] = overlap == contract.CancelOther
		}
	}
	return outcomes
}

// one returns the outcome of a tick by the sentences of the documentation.
func (n *naiveSchedule) one(overlap string, last bool) string {
	idle := n.runs == 0 && len(n.queue) == 0
	switch overlap {
	case contract.Skip:
		if !idle {
			return contract.TickSkipped
		}
	case contract.QueueOne:
		if n.runs+len(n.queue) > 1 {
			return contract.TickSkipped
		}
		if !idle {
			return contract.TickQueued
		}
	case contract.QueueAll:
		if !idle {
			return contract.TickQueued
		}
	case contract.CancelOther:
		if !last {
			return contract.TickSkipped
		}
		if n.runs > 0 {
			return contract.TickQueued
		}
	}
	return contract.TickRun
}

// TestDecideEqualsANaiveReference compares random histories of edits, pauses, ticks, requests, ends, retries and deletions.
func TestDecideEqualsANaiveReference(t *testing.T) {
	policies := []string{contract.Skip, contract.QueueOne, contract.QueueAll, contract.CancelOther, contract.AllowAll}
	rng := rand.New(rand.NewPCG(37, 1))
	histories := 100_000
	if testing.Short() {
		histories = 5_000
	}
	seen := map[string]int{}
	for history := range histories {
		n := naiveSchedule{overlap: policies[rng.IntN(len(policies))], cancels: map[string]bool{}, made: map[string]string{}}
		last := 0 // minute
		for step := range 12 {
			switch rng.IntN(10) {
			case 0:
				n.overlap = policies[rng.IntN(len(policies))]
			case 1:
				n.paused = rng.IntN(3) == 0
			case 2, 3, 4:
				n.runs = max(n.runs-1, 0)
			case 5: // a retried run is open again
				n.runs++
			default:
				r := randomRequest(rng, policies, &last)
				compareWithNaive(t, &n, r, history*100+step, seen)
			}
		}
	}
	for _, outcome := range []string{
		contract.TickRun, contract.TickQueued, contract.TickSkipped, contract.TickMissed, contract.TickExists, contract.TickChanged, "start",
		"replace", "cancel",
	} {
		require.Greater(t, seen[outcome], 100, "%s: %v", outcome, seen)
	}
}

// randomRequest returns a request after a minute, and sometimes for a minute that has a tick. Some are a repetition after a lost answer.
func randomRequest(rng *rand.Rand, policies []string, last *int) *Request {
	r := &Request{}
	onRequest := rng.IntN(4) == 0
	if onRequest {
		r.Forced = rng.IntN(3) == 0
		if rng.IntN(2) == 0 {
			r.Overlap = policies[rng.IntN(len(policies))]
		}
	}
	begin := max(*last-rng.IntN(2), 0)
	for i := range rng.IntN(4) {
		*last = max(*last, begin+i+1)
		at := minuteOf(begin + i + 1)
		tick := Tick{Version: 1, Occasion: CronOccasion(at), Planned: at, RunAt: at}
		if onRequest {
			tick.Version, tick.Planned = 0, time.Time{}
		}
		switch rng.IntN(12) {
		case 0:
			tick.Version = 2
		case 1:
			tick.Missed = 3
		}
		r.Ticks = append(r.Ticks, tick)
	}
	if len(r.Ticks) > 0 && rng.IntN(10) == 0 {
		r.Ticks = append(r.Ticks, r.Ticks[0])
	}
	return r
}

// compareWithNaive decides about a request with both, and requires equal outcomes and states. What names the history and the step.
func compareWithNaive(t *testing.T, n *naiveSchedule, r *Request, what int, seen map[string]int) {
	t.Helper()
	f := Facts{Version: 1, Paused: n.paused, Overlap: n.overlap, Open: n.runs, Queued: len(n.queue), Made: map[string]bool{}}
	if !n.handled.IsZero() {
		f.Handled = new(n.handled)
	}
	for occasion := range n.made {
		f.Made[occasion] = true
	}
	if len(n.queue) > 0 {
		f.Next, f.Cancels = n.queue[0], n.cancels[n.queue[0]]
	}
	before := slices.Clone(n.queue)
	d := Decide(&f, r)
	want := n.make(r)
	runs := f.Open
	if d.Start != "" {
		runs++
		seen["start"]++
		require.Zero(t, f.Open, what)
		require.Equal(t, before[0], d.Start, what)
		require.Equal(t, contract.TickRun, n.made[d.Start], what)
	}
	got := make([]string, len(d.Ticks))
	for i, tick := range d.Ticks {
		got[i] = tick.Outcome
		seen[tick.Outcome]++
		if tick.Outcome == contract.TickRun {
			runs++
		}
	}
	require.Equal(t, append([]string{}, want...), got, what)
	require.Equal(t, n.runs, runs, what)
	require.Equal(t, len(n.queue) > 0, d.Waiting, what)
	if d.Replace {
		seen["replace"]++
		for _, q := range before {
			require.Equal(t, contract.TickSkipped, n.made[q], what)
		}
	}
	if d.Cancel {
		seen["cancel"]++
	}
	require.Equal(t, f.Open > 0 && len(n.queue) > 0 && n.cancels[n.queue[0]], d.Cancel, what)
}
