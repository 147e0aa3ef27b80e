package judge

import (
	"testing"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// withKeys is a history of two jobs with a key, of which the second runs twice.
func withKeys() *history.History {
	h := clean()
	h.Rows[0].Keys, h.Rows[1].Keys = "k", "k"
	h.Rows[1].Type = "pdf"
	h.Batches[0].Jobs = h.Batches[0].Jobs[:1]
	h.Batches = append(h.Batches,
		history.Batch{Jobs: []history.Work{{N: 12, Type: "pdf", Do: history.Refuse}}, Begun: 2*second + 1, Ended: 3 * second})
	h.Changes[0].Due, h.Changes[1].Due = second, 2*second
	h.Changes[2].Fence, h.Changes[5].Fence, h.Changes[7].Fence = 1, 2, 3
	return h
}

func TestJobsWithKeysPass(t *testing.T) {
	if r := Judge(withKeys()); r.KeyOver+r.KeyOrder != 0 {
		t.Errorf("%+v", r)
	}
}

func TestEveryViolationOfKeysIsReported(t *testing.T) {
	type h = history.History
	for _, c := range []struct {
		name        string
		over, order int
		spoil       func(*h)
	}{
		{"a second job starts", 1, 0, func(h *h) { h.Changes[7].At = 8 * second }},
		{"there is room for two", 0, 0, func(h *h) { h.Changes[7].At, h.Capacity = 8*second, map[string]int{"k": 2} }},
		{"the cost is too high", 1, 0, func(h *h) {
			h.Changes[7].At, h.Capacity, h.Rows[1].Keys = 8*second, map[string]int{"k": 2}, "other k*2"
		}},
		{"the costs of a key add up", 2, 0, func(h *h) { h.Rows[0].Keys = "k k" }},
		{"a job needs all", 1, 0, func(h *h) {
			h.Changes[7].At, h.Capacity, h.Rows[1].Keys = 8*second, map[string]int{"k": 9}, "k*all"
		}},
		{"a job that needs all is not alone", 1, 0, func(h *h) {
			h.Changes[7].At, h.Capacity, h.Rows[0].Keys = 8*second, map[string]int{"k": 9}, "k*all"
		}},
		{"a job overtakes an earlier one", 0, 1, func(h *h) { h.Changes[2].Fence = 4 }},
		{"a job overtakes one that was committed late", 0, 0, func(h *h) { h.Changes[2].Fence, h.Batches[0].Ended = 4, 3*second }},
		{"a job overtakes one of unknown fate", 0, 0, func(h *h) { h.Changes[2].Fence, h.Batches[0].Fate = 4, history.Unknown }},
		{"a job overtakes one of another priority", 0, 0, func(h *h) { h.Changes[2].Fence, h.Rows[0].Priority = 4, 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			spoilt := withKeys()
			c.spoil(spoilt)
			if r := Judge(spoilt); r.KeyOver != c.over || r.KeyOrder != c.order {
				t.Errorf("over %d, order %d, want %d and %d: %+v", r.KeyOver, r.KeyOrder, c.over, c.order, r.Findings)
			}
		})
	}
}
