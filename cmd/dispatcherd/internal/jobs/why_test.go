package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// All facts of an explanation are printed, with the names of the API, and times in UTC.
func TestWhyPrintsAllFacts(t *testing.T) {
	var lines []string
	add := func(name, format string, args ...any) { lines = append(lines, name+" "+fmt.Sprintf(format, args...)) }
	at := time.Date(2026, 1, 31, 23, 0, 0, 0, time.FixedZone("west", -3*3600))
	capacity, passed := int64(100), 2.5
	addWhy(add, &httpapi.Why{
		Job: 7, Type: "pdf", Status: "pending", Reasons: []string{"Scheduled", httpapi.ReasonKeyBusy}, RunAt: &at, Age: 1.5,
		KeyWait: &httpapi.KeyWait{Key: "k", Held: 1, Capacity: &capacity, Holders: []int64{7, 8}, Position: 1},
		Slots:   []httpapi.Slot{{Slot: 3, Worker: "w", Types: []string{"a", "b"}, State: "busy", Left: 2}},
		Ahead:   []httpapi.Rival{{Job: 8, Type: "pdf", Mode: "queued", Passed: &passed}},
	})
	require.Equal(t, []string{
		"reason Scheduled: its run_at is in the future",
		"reason KeyBusy: a key has no room",
		"job 7",
		"type pdf",
		"mode ",
		"priority 0",
		"status pending",
		"run at 2026-02-01T02:00:00.000Z",
		"age 1.5s",
		"capacity 0",
		"free 0",
		"slots slot 3, worker w, session 0, number 0, types a, b, state busy, left 2s",
		"ahead job 8, mode queued, type pdf, priority 0, score total 0, base 0, age 0, rarity 0, on demand 0, passed in 2.5s",
		"key wait key k, held 1, capacity 100, holders 7, holders 8, position 1",
	}, lines)
	lines = nil
	addWhy(add, &httpapi.Why{})
	require.Equal(t, "reason none: it starts next", lines[0])
}
