package claimfake

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// lane holds the keys of the pending rows of one type, priority and class in order.
type lane struct {
	keys []contract.Key
	head int
}

func (t *Table) lane(name contract.Lane) *lane {
	l := t.lanes[name]
	if l == nil {
		l = &lane{}
		t.lanes[name] = l
	}
	return l
}

// Pending returns the keys of the pending rows of a lane in order, for reading.
func (t *Table) Pending(name contract.Lane) []contract.Key {
	l := t.lane(name)
	return l.keys[l.head:]
}

// named returns the lanes of a type with an expected duration that contain a row which may reports.
func (t *Table) named(typ string, may func(dispatcherd.JobID) bool) (lanes []contract.NamedLane) {
	for p := dispatcherd.MaxPriority; p >= dispatcherd.MinPriority; p-- {
		for c := dispatcherd.DurationClass(dispatcherd.DurationClasses - 1); c > dispatcherd.NoDuration; c-- {
			if l := t.lanes[contract.Lane{Type: typ, Priority: p, Class: c}]; l != nil &&
				slices.ContainsFunc(l.keys[l.head:], func(k contract.Key) bool { return may(k.ID) }) {
				lanes = append(lanes, contract.NamedLane{Priority: p, Class: c})
			}
		}
	}
	return lanes
}

// find returns the position in keys of the first key that is not before k.
func (l *lane) find(k contract.Key) int {
	n, _ := slices.BinarySearchFunc(l.keys[l.head:], k, contract.Key.Compare)
	return l.head + n
}

func (l *lane) add(k contract.Key) {
	if n := len(l.keys); n == l.head || l.keys[n-1].Less(k) {
		l.keys = append(l.keys, k)
		return
	}
	i := l.find(k)
	if l.head > 0 && i-l.head < len(l.keys)-i {
		copy(l.keys[l.head-1:], l.keys[l.head:i])
		l.head--
		l.keys[i-1] = k
		return
	}
	l.keys = slices.Insert(l.keys, i, k)
}

func (l *lane) remove(k contract.Key) {
	i := l.find(k)
	if i == len(l.keys) || l.keys[i] != k {
		panic("claimfake: a pending row is missing in its lane")
	}
	if i-l.head < len(l.keys)-i {
		copy(l.keys[l.head+1:i+1], l.keys[l.head:i])
		l.head++
	} else {
		l.keys = slices.Delete(l.keys, i, i+1)
	}
	if l.head == len(l.keys) {
		l.keys, l.head = l.keys[:0], 0
	}
}

// read returns the keys that a query asks for and that may reports.
func (l *lane) read(q *contract.LaneQuery, backfill bool, may func(dispatcherd.JobID) bool) (keys []contract.Key) {
	from := l.find(contract.Key{RunAt: q.After.RunAt, ID: q.After.ID + 1})
	for ; from < len(l.keys) && len(keys) < q.Limit && (!backfill || l.keys[from].Less(q.Before)); from++ {
		if k := l.keys[from]; q.Share.Owns(k.ID) != q.NonLocal && may(k.ID) {
			keys = append(keys, k)
		}
	}
	return keys
}
