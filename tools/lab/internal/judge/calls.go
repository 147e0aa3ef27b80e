package judge

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// lateness is how late an answer may be on a busy machine.
const lateness = 5 * time.Second

// noSlot is the problem type for which the status cannot be predicted.
const noSlot = ":no-slot-supports-type"

// calls checks the answers that callers received. It does not check broken
// connections: only the trial that broke them knows whether the dispatcher was
// alive.
func (r *Report) calls(h *history.History) {
	runs := map[int64][]run{}
	for i := range h.Processes {
		p := &h.Processes[i]
		for k := range p.Runs {
			if e := &p.Runs[k]; len(h.Calls) > 0 {
				runs[e.N] = append(runs[e.N], run{e, p})
			}
		}
	}
	for i := range h.Calls {
		c := &h.Calls[i]
		mine := runs[c.Work.N]
		r.answer(c, mine)
		if c.Manner == history.InMemory {
			r.countOverlaps(mine)
		}
	}
}

// answer checks one answer.
func (r *Report) answer(c *history.Call, runs []run) {
	took := time.Duration(c.Ended - c.Begun)
	bad := ""
	switch {
	case took > c.Timeout+lateness:
		bad = "was left waiting"
	case c.Status == 200 && (c.Result == nil || c.Result.N != c.Work.N):
		bad = "got the result of another request"
	case c.Status == 200 && !slices.ContainsFunc(runs, func(e run) bool {
		return e.Attempt == c.Result.Attempt && e.Outcome == history.OK && e.End <= c.Ended
	}):
		bad = "got a result that no worker had reported"
	case (c.Status == 503 || c.Status == 429) && !c.RetryAfter && !strings.HasSuffix(c.Problem, noSlot):
		bad = "got no Retry-After"
	case c.Status == 504 && took < c.Timeout-history.Slack:
		bad = "got a timeout before its deadline"
	case c.Status == 0, c.Status == 200, c.Status == 503, c.Status == 429, c.Status == 504:
	case c.Status == 202 && c.Manner == history.Async:
	default:
		bad = "got an unexpected status"
	}
	if bad != "" {
		r.find(&r.Dishonest, "dishonest", 0, "the caller of %d (%s, at %s) %s: status %d %s after %v, result %v",
			c.Work.N, c.Manner, c.Daemon, bad, c.Status, c.Problem, took, c.Result)
	}
}

// countOverlaps counts executions of the same request at the same time.
func (r *Report) countOverlaps(runs []run) {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.Start, b.Start) })
	var busy int64
	for _, e := range runs {
		if e.Start < busy {
			r.Twice++
		}
		busy = max(busy, e.until())
	}
}
