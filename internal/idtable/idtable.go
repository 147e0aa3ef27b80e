// Package idtable is a hash table from job ids to pointers, for ids that come in
// contiguous ranges.
//
// Four consecutive ids share a cache line. If jobs are inserted, claimed and
// finished together, three in four lookups are served by the CPU cache. With
// 100,000 jobs in hand, lookups in main memory would take most of the time.
//
// The table uses open addressing with linear probing and is at most half full. A
// deletion moves later entries towards their preferred places, so there are no
// markers for deleted entries.
//
// A table that grows moves a few entries with each insertion. To move 100,000 entries
// at once takes 10 ms, in which no other event would be handled.
package idtable

import (
	"math/bits"

	"github.com/dispatcherd/dispatcherd"
)

// Table maps ids to values. The zero Table is empty. It must be used by one
// goroutine at a time.
type Table[V any] struct {
	array[V]
	old    array[V] // while the table grows: its previous entries. The value of a removed entry is nil.
	moved  int      // number of elements of old whose entries are also in array
	n      int
	newest dispatcherd.JobID // the largest id that was put since the table was last empty
}

// array is a hash table that does not grow.
type array[V any] struct {
	entries []entry[V] // the length is 0 or a power of two
	shift   uint8      // 64 minus the number of bits of a group's number
}

type entry[V any] struct {
	id    dispatcherd.JobID // 0 = empty
	value *V
}

const (
	groupBits     = 2 // consecutive ids that stay together
	smallestTable = 64
	// movesPerPut is the number of elements of old that Put moves. More than two are
	// necessary, so that the table has moved all of them before it is full again.
	movesPerPut = 8
)

// home is the preferred place of an id.
func (a *array[V]) home(id dispatcherd.JobID) int {
	group := (uint64(id) >> groupBits) * 0x9e3779b97f4a7c15 >> a.shift
	return int(group)<<groupBits | int(id)&(1<<groupBits-1)
}

func (a *array[V]) find(id dispatcherd.JobID) int {
	mask := len(a.entries) - 1
	i := a.home(id)
	for a.entries[i].id != 0 && a.entries[i].id != id {
		i = (i + 1) & mask
	}
	return i
}

// Get returns the value of an id, or nil.
func (t *Table[V]) Get(id dispatcherd.JobID) *V {
	if t.n == 0 || id == 0 {
		return nil
	}
	if v := t.entries[t.find(id)].value; v != nil || t.old.entries == nil {
		return v
	}
	return t.old.entries[t.old.find(id)].value
}

// GetOld is like Get, but faster for an id that is larger than all ids in the
// table: it compares the id with the largest one and reads no entry. The ids of
// rows that are read ahead are mostly such ids.
func (t *Table[V]) GetOld(id dispatcherd.JobID) *V {
	if id > t.newest {
		return nil
	}
	return t.Get(id)
}

// Len returns the number of ids.
func (t *Table[V]) Len() int { return t.n }

// Put adds an id that is not in the table and not 0.
func (t *Table[V]) Put(id dispatcherd.JobID, value *V) {
	if t.old.entries == nil && 2*(t.n+1) > len(t.entries) {
		size := max(smallestTable, 2*len(t.entries))
		t.old, t.moved = t.array, 0
		t.array = array[V]{make([]entry[V], size), uint8(64 - bits.TrailingZeros(uint(size)>>groupBits))}
	}
	if t.old.entries != nil {
		t.moveSome()
	}
	t.entries[t.find(id)] = entry[V]{id, value}
	if t.n++; t.n == 1 {
		t.newest = id
	}
	t.newest = max(t.newest, id)
}

// moveSome copies some entries of old.
func (t *Table[V]) moveSome() {
	end := min(t.moved+movesPerPut, len(t.old.entries))
	for _, e := range t.old.entries[t.moved:end] {
		if e.value != nil {
			t.entries[t.find(e.id)] = e
		}
	}
	if t.moved = end; end == len(t.old.entries) {
		t.old = array[V]{}
	}
}

// Remove removes an id that is in the table.
func (t *Table[V]) Remove(id dispatcherd.JobID) {
	t.n--
	if t.old.entries != nil {
		if e := &t.old.entries[t.old.find(id)]; e.id == id {
			e.value = nil
		}
	}
	mask := len(t.entries) - 1
	hole := t.find(id)
	if t.entries[hole].id == 0 {
		return // it was only in old
	}
	for i := (hole + 1) & mask; t.entries[i].id != 0; i = (i + 1) & mask {
		// An entry may fill the hole unless its preferred place is after the hole.
		if home := t.home(t.entries[i].id); (i-home)&mask >= (i-hole)&mask {
			t.entries[hole] = t.entries[i]
			hole = i
		}
	}
	t.entries[hole] = entry[V]{}
}
