package main

import (
	"encoding/json"
	"testing"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

func TestDuplicatesFindsEachKeyWithoutExactlyOneJob(t *testing.T) {
	live := []keyed{{1, 11}, {2, 12}, {3, 13}}
	told := []map[int]int64{{1: 11, 2: 12}, {2: 12, 3: 13}}
	for _, c := range []struct {
		name string
		want int
		live []keyed
		told []map[int]int64
	}{
		{"none", 0, live, told},
		{"a key has two jobs", 1, append(live[:3:3], keyed{1, 14}), told},
		{"a key has no job", 1, live[:2], told},
		{"two producers were told different jobs", 1, live, []map[int]int64{{1: 11, 2: 15}, {2: 12}}},
	} {
		if got := duplicates(3, c.live, c.told); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestEqualSharesFindsEachWrongAnswer(t *testing.T) {
	chunk := func(worker string, items int) client.Chunk {
		return client.Chunk{OK: true, Result: json.RawMessage("3"), Worker: worker, Items: items}
	}
	good := []client.Chunk{chunk("a", 3), chunk("b", 3), chunk("c", 3)}
	if !equalShares(good) {
		t.Error("equal shares are wrong")
	}
	for name, chunks := range map[string][]client.Chunk{
		"a chunk is missing":      good[:2],
		"a worker has two chunks": {good[0], good[1], good[1]},
		"a chunk is larger":       {good[0], good[1], chunk("c", 4)},
		"a chunk failed":          {good[0], good[1], {Worker: "c", Items: 3, Error: "no"}},
		"a result is wrong":       {good[0], good[1], {OK: true, Worker: "c", Items: 3, Result: json.RawMessage("2")}},
	} {
		if equalShares(chunks) {
			t.Error(name, "and is not found")
		}
	}
}

func TestStoppedCountsOnlyExecutionsThatWereStopped(t *testing.T) {
	told, last := stopped([]history.Process{
		{Runs: []history.Execution{{End: 5, Outcome: history.Stopped}, {End: 9, Outcome: history.OK}}},
		{Runs: []history.Execution{{End: 7, Outcome: history.Stopped}, {Start: 3}}},
	})
	if told != 2 || last != 7 {
		t.Error(told, last)
	}
}
