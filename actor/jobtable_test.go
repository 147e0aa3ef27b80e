package actor

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

func TestJobTableEqualsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var table jobTable
	want := map[dispatcherd.JobID]*job{}
	var ids []dispatcherd.JobID // in want
	for range 300_000 {
		id := randomJobID(rng)
		switch {
		case want[id] == nil && len(ids) < 400 && rng.IntN(5) > 0:
			j := &job{id: id}
			want[id], ids = j, append(ids, id)
			table.put(j)
		case len(ids) > 0 && rng.IntN(2) == 0:
			i := rng.IntN(len(ids))
			table.remove(ids[i])
			delete(want, ids[i])
			ids[i] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
		}
		require.Same(t, want[id], table.get(id))
		require.Same(t, want[id], table.getOld(id))
		require.Equal(t, len(want), table.n)
	}
	for id, j := range want {
		require.Same(t, j, table.get(id))
	}
	require.LessOrEqual(t, len(table.entries), 1024, "400 jobs")
}

// The lookup of an id above all ids in the table ends at once, even after the
// table has contained a row with a much higher id.
func TestHugeIDSlowsTheTableOnlyOnce(t *testing.T) {
	var table jobTable
	require.Nil(t, table.getOld(1), "an empty table")
	table.put(&job{id: 1 << 40})
	require.NotNil(t, table.getOld(1<<40))
	table.remove(1 << 40)
	table.put(&job{id: -7})
	require.EqualValues(t, -7, table.newest)
	table.put(&job{id: 5})
	table.put(&job{id: 3})
	require.EqualValues(t, 5, table.newest)
	require.NotNil(t, table.getOld(3))
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

func TestContiguousIDsAreAdjacentInTheJobTable(t *testing.T) {
	var table jobTable
	for id := dispatcherd.JobID(1); id <= 1000; id++ {
		table.put(&job{id: id})
	}
	moved := 0
	for id := dispatcherd.JobID(4); id+4 <= 1000; id += 4 {
		if table.find(id+3) != table.find(id)+3 {
			moved++
		}
	}
	require.Less(t, moved, 100, "of 249 runs of four")
}
