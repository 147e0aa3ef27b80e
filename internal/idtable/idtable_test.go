package idtable

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

type job struct{ id dispatcherd.JobID }

func TestTableEqualsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var table Table[job]
	want := map[dispatcherd.JobID]*job{}
	var ids []dispatcherd.JobID // in want
	for range 300_000 {
		id := randomJobID(rng)
		switch {
		case want[id] == nil && len(ids) < 400 && rng.IntN(5) > 0:
			j := &job{id}
			want[id], ids = j, append(ids, id)
			table.Put(id, j)
		case len(ids) > 0 && rng.IntN(2) == 0:
			i := rng.IntN(len(ids))
			table.Remove(ids[i])
			delete(want, ids[i])
			ids[i] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
		}
		require.Same(t, want[id], table.Get(id))
		require.Same(t, want[id], table.GetOld(id))
		require.Equal(t, len(want), table.Len())
	}
	for _, j := range want { // order-free: each comparison stands alone
		require.Same(t, j, table.Get(j.id))
	}
	require.LessOrEqual(t, len(table.entries), 1024, "400 jobs")
}

// The lookup of an id above all ids in the table ends at once, even after the
// table has contained a row with a much higher id.
func TestHugeIDSlowsTheTableOnlyOnce(t *testing.T) {
	var table Table[job]
	require.Nil(t, table.GetOld(1), "an empty table")
	table.Put(1<<40, &job{1 << 40})
	require.NotNil(t, table.GetOld(1<<40))
	table.Remove(1 << 40)
	table.Put(-7, &job{-7})
	require.EqualValues(t, -7, table.newest)
	table.Put(5, &job{5})
	table.Put(3, &job{3})
	require.EqualValues(t, 5, table.newest)
	require.NotNil(t, table.GetOld(3))
}

// While the table grows, an insertion moves few entries, and the entries that are not
// moved yet are found and removed.
func TestGrowthIsSpreadOverManyInsertions(t *testing.T) {
	var table Table[job]
	for id := dispatcherd.JobID(1); id <= 1<<16; id++ {
		table.Put(id, &job{id})
	}
	require.Nil(t, table.old.entries, "the previous growth has ended")
	table.Put(1<<16+1, &job{1<<16 + 1})
	used := 0
	for _, e := range table.entries {
		if e.id != 0 {
			used++
		}
	}
	require.LessOrEqual(t, used, 1+movesPerPut)
	for id := dispatcherd.JobID(1); id <= 1<<16; id++ {
		require.Equal(t, id, table.Get(id).id)
		table.Remove(id)
		require.Nil(t, table.Get(id))
	}
	require.Equal(t, 1, table.Len())
}

// randomJobID draws ids from contiguous ranges, from requests, and from ids
// with equal low bits.
func randomJobID(rng *rand.Rand) dispatcherd.JobID {
	switch rng.IntN(3) {
	case 0:
		return dispatcherd.JobID(1 + rng.IntN(500))
	case 1:
		return -dispatcherd.JobID(1 + rng.IntN(500))
	}
	return dispatcherd.JobID(1+rng.IntN(500)) << 32
}

func TestContiguousIDsAreAdjacent(t *testing.T) {
	var table Table[job]
	for id := dispatcherd.JobID(1); id <= 1000; id++ {
		table.Put(id, &job{id})
	}
	moved := 0
	for id := dispatcherd.JobID(4); id+4 <= 1000; id += 4 {
		if table.find(id+3) != table.find(id)+3 {
			moved++
		}
	}
	require.Less(t, moved, 100, "of 249 runs of four")
}
