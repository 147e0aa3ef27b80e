package trace

import (
	"cmp"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// memoryTable replaces the table of jobs. It contains the pending rows by
// lane. Every statement succeeds, and a claim wins every pending row.
type memoryTable struct {
	lanes map[tableLane][]contract.Key // ascending
	where map[dispatcherd.JobID]tableRow
}

type tableLane struct {
	typ      string
	priority dispatcherd.Priority
	class    dispatcherd.DurationClass
}

type tableRow struct {
	tableLane
	key contract.Key
}

// newMemoryTable returns a table that names all lanes of a trace from the start, so that no job waits for a full scan.
func newMemoryTable(t *Trace) *memoryTable {
	m := &memoryTable{lanes: map[tableLane][]contract.Key{}, where: map[dispatcherd.JobID]tableRow{}}
	for i := range t.Jobs {
		if j := &t.Jobs[i]; j.Mode == dispatcherd.Queued {
			m.lanes[j.lane()] = nil
		}
	}
	return m
}

// lane returns the lane of a queued job.
func (j *Job) lane() tableLane { return tableLane{j.Type, j.Priority, j.class()} }

// insert adds a pending row. The rows of a lane must be inserted in ascending
// order.
func (m *memoryTable) insert(l tableLane, k contract.Key) {
	m.lanes[l] = append(m.lanes[l], k)
	m.where[k.ID] = tableRow{l, k}
}

// position returns the index of the first key that is not before k.
func position(keys []contract.Key, k contract.Key) int {
	i, _ := slices.BinarySearchFunc(keys, k, contract.Key.Compare)
	return i
}

func (m *memoryTable) fetch(r *contract.FetchRequest, dbNow int64) contract.FetchResult {
	res := contract.FetchResult{DBNow: dbNow}
	for i, lane := range r.Lanes {
		keys := m.lanes[tableLane{lane.Type, lane.Priority, lane.Class}]
		next := lane.After
		next.ID++ // the first key that is after it
		keys = keys[position(keys, next):]
		if r.Backfill {
			keys = keys[:position(keys, lane.Before)]
		}
		for _, k := range keys[:min(lane.Limit, len(keys))] {
			res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: k})
		}
	}
	for l := range m.lanes { // order-free: sorted below
		if i := slices.Index(r.Classes, l.typ); i >= 0 && l.class != dispatcherd.NoDuration {
			res.Named = append(res.Named, contract.NamedLane{Type: i, Priority: l.priority, Class: l.class})
		}
	}
	slices.SortFunc(res.Named, func(a, b contract.NamedLane) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Class, b.Class))
	})
	return res
}

func (m *memoryTable) claim(r *contract.ClaimRequest) contract.ClaimResult {
	var res contract.ClaimResult
	for _, id := range r.IDs {
		row, pending := m.where[id]
		if !pending {
			continue
		}
		keys := m.lanes[row.tableLane]
		i := position(keys, row.key)
		m.lanes[row.tableLane] = slices.Delete(keys, i, i+1)
		delete(m.where, id)
		res.Won = append(res.Won, contract.Won{ID: id, Type: row.typ, Priority: row.priority, Attempt: 1, MaxAttempts: 1})
	}
	return res
}
