package decisionlog

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/scoring"
)

func placements(from, n int) (ds []actor.Decision) {
	for i := range n {
		ds = append(ds, actor.Decision{Kind: actor.DecisionPlaced, Job: dispatcherd.JobID(from + i), Type: "pdf"})
	}
	return ds
}

func jobs(l *Log) (ids []int64) {
	l.Each(func(e *Entry) bool {
		ids = append(ids, int64(e.Job))
		return true
	})
	return ids
}

func TestFullLogOverwritesTheOldestEntries(t *testing.T) {
	l := New(3)
	require.Empty(t, jobs(l))
	l.Append(time.Now(), placements(1, 2))
	require.Equal(t, []int64{1, 2}, jobs(l))
	require.Equal(t, Stats{Entries: 2, Written: 2}, l.Stats())
	l.Append(time.Now(), placements(3, 5))
	require.Equal(t, []int64{5, 6, 7}, jobs(l))
	require.Equal(t, Stats{Entries: 3, Written: 7, Overwritten: 4}, l.Stats())
}

func TestLogOfSeveralChunksWraps(t *testing.T) {
	const entries = 2*chunk + 5
	l := New(entries)
	for from := 1; from < 3*entries; from += 100 {
		l.Append(time.Now(), placements(from, 100))
	}
	got := jobs(l)
	require.Len(t, got, entries)
	for i, id := range got {
		require.Equal(t, got[0]+int64(i), id)
	}
	require.EqualValues(t, l.Stats().Written, got[entries-1])
}

func TestEntriesOverwrittenWhileReadingAreLeftOut(t *testing.T) {
	l := New(2 * chunk)
	l.Append(time.Now(), placements(1, 2*chunk))
	seen := 0
	l.Each(func(e *Entry) bool {
		if seen++; seen == 1 {
			l.Append(time.Now(), placements(2*chunk+1, 2*chunk))
		}
		return true
	})
	require.Equal(t, chunk, seen, "the first chunk was copied before it was overwritten")
}

func TestFindReturnsTheLatestAttempt(t *testing.T) {
	l := New(10)
	l.Append(time.Now(), []actor.Decision{
		{Kind: actor.DecisionPlaced, Job: 7, Slot: 1},
		{Kind: actor.DecisionEnded, Job: 7, Outcome: contract.Retry},
		{Kind: actor.DecisionWaiting, Job: 7},
		{Kind: actor.DecisionPlaced, Job: 7, Slot: 2},
		{Kind: actor.DecisionEnded, Job: 7, Outcome: contract.Succeeded},
	})
	placed, ended := l.Find(7)
	require.EqualValues(t, 2, placed.Slot)
	require.Equal(t, "done", ended.OutcomeName())
	placed, ended = l.Find(8)
	require.Nil(t, placed)
	require.Nil(t, ended)
}

func TestEntrySizeIsTheDocumentedOne(t *testing.T) {
	require.EqualValues(t, 192, reflect.TypeFor[Entry]().Size())
}

func TestExportWritesOneObjectPerLine(t *testing.T) {
	l := New(10)
	l.Append(time.Unix(10, 0), []actor.Decision{
		{
			Kind:      actor.DecisionPlaced,
			Job:       7,
			Type:      "pdf",
			Worker:    "w",
			Slot:      3,
			Capacity:  2,
			SlotTypes: 1,
			Terms:     scoring.Terms{Base: 5000, Rarity: 250},
			RunnerUp:  actor.RunnerUp{Job: 8, Type: "ocr", Score: 4000},
			Waited:    2 * time.Second,
			Reasons:   1,
		},
		{Kind: actor.DecisionEnded, Job: -2, Type: "pdf", Mode: dispatcherd.OnDemand, Answer: effect.AnswerLate, Ran: time.Second},
	})
	var out bytes.Buffer
	require.NoError(t, l.Export(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	require.JSONEq(t,
		`{"at":"1970-01-01T00:00:10Z","decision":"placed","job":7,"mode":"queued","type":"pdf","priority":0,"slot":3,"worker":"w",
		"capacity":2,"slot_types":1,"score":{"total":5.25,"base":5,"age":0,"rarity":0.25,"on_demand":0},
		"runner_up":{"job":8,"type":"ocr","score":4},"reasons":["CapacityBusy"],"waited_seconds":2}`,
		lines[0],
	)
	var last Line
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &last))
	require.Equal(t, "late", last.Outcome)
	require.InDelta(t, 1, *last.Ran, 0)
}

func TestSecondsOfEntriesHaveThreeDecimals(t *testing.T) {
	e := Entry{
		At:       time.Unix(0, 0),
		Decision: actor.Decision{Kind: actor.DecisionEnded, Waited: 63*time.Second + 952*time.Millisecond, Ran: 31_952 * time.Millisecond},
	}
	text, err := json.Marshal(e.Line())
	require.NoError(t, err)
	require.Contains(t, string(text), `"waited_seconds":63.952,"ran_seconds":31.952`)
}
