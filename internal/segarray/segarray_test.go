package segarray

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestElementsKeepTheirPlaceAndValueUntilRemoved(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var a Array[int32, int]
	where, ids := map[int32]*int{}, []int32{}
	for n := range 20 * size {
		if len(ids) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(ids))
			a.Remove(ids[i])
			require.Zero(t, *where[ids[i]])
			delete(where, ids[i])
			ids[i] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
			continue
		}
		id := a.Add()
		require.Nil(t, where[id], "in use")
		require.Zero(t, *a.At(id))
		where[id], ids = a.At(id), append(ids, id)
		*a.At(id) = n + 1
	}
	require.Less(t, a.Len(), 10*size, "removed elements are used again")
	values := map[int]bool{}
	for id, p := range where {
		require.Same(t, p, a.At(id))
		require.NotZero(t, *p)
		values[*p] = true
	}
	require.Len(t, values, len(ids))
}
