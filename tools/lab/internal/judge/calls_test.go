package judge

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// called is a history with one request that was answered with its result.
func called() *history.History {
	return &history.History{
		Calls: []history.Call{{
			Work: history.Work{N: 5, Type: "pdf"}, Manner: history.InMemory, Daemon: "a", Begun: 1 * second, Ended: 3 * second,
			Timeout: 2 * time.Second, Status: 200, Result: &history.Result{N: 5, Attempt: 1},
		}},
		Processes: []history.Process{{
			Name: "w0.0", Offers: map[int32][]string{0: {"pdf"}, 1: {"pdf"}},
			Runs: []history.Execution{{Job: -1, Attempt: 1, Type: "pdf", N: 5, Start: 1 * second, End: 2 * second, Outcome: history.OK}},
		}},
	}
}

func TestCorrectAnswerPasses(t *testing.T) {
	if r := Judge(called()); r.Violations() != 0 || r.Twice != 0 || r.Executions != 1 {
		t.Errorf("%+v", r)
	}
}

func TestEveryWrongAnswerIsReported(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(c *history.Call)
	}{
		{"no answer for much too long", func(c *history.Call) { c.Ended = 20 * second }},
		{"result of another request", func(c *history.Call) { c.Result.N = 6 }},
		{"no result", func(c *history.Call) { c.Result = nil }},
		{"result of an attempt that did not exist", func(c *history.Call) { c.Result.Attempt = 2 }},
		{"answer before the end of the execution", func(c *history.Call) { c.Ended = 3 * second / 2 }},
		{"503 without Retry-After", func(c *history.Call) { c.Status = 503 }},
		{"429 without Retry-After", func(c *history.Call) { c.Status = 429 }},
		{"504 before the deadline", func(c *history.Call) { c.Status, c.Ended = 504, 2*second }},
		{"internal error", func(c *history.Call) { c.Status = 500 }},
		{"202 to a caller that waits", func(c *history.Call) { c.Status = 202 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := called()
			c.spoil(&h.Calls[0])
			if r := Judge(h); r.Dishonest != 1 || r.Violations() != 1 {
				t.Errorf("not found: %+v", r)
			}
		})
	}
}

func TestRefusalWithAReasonPasses(t *testing.T) {
	for _, spoil := range []func(c *history.Call){
		func(c *history.Call) { c.Status, c.RetryAfter = 503, true },
		func(c *history.Call) { c.Status, c.Problem = 503, "urn:dispatcherd:problem:no-slot-supports-type" },
		func(c *history.Call) { c.Status, c.RetryAfter = 429, true },
		func(c *history.Call) { c.Status = 504 },
		func(c *history.Call) { c.Status, c.Refused = 0, true },
		func(c *history.Call) { c.Status, c.Manner = 202, history.Async },
	} {
		h := called()
		spoil(&h.Calls[0])
		if r := Judge(h); r.Violations() != 0 {
			t.Errorf("%+v: %+v", h.Calls[0], r.Findings)
		}
	}
}

func TestRequestThatRunsTwiceAtTheSameTimeIsCounted(t *testing.T) {
	h := called()
	h.Processes[0].Runs = append(h.Processes[0].Runs,
		history.Execution{Job: -7, Attempt: 1, Slot: 1, Type: "pdf", N: 5, Start: 3 * second / 2, End: 2 * second})
	if r := Judge(h); r.Twice != 1 {
		t.Errorf("%+v", r)
	}
}
