package heap

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type number struct {
	value int
	place int32
}

type byValue struct{}

func (byValue) Before(a, b *number) bool { return a.value < b.value }
func (byValue) Place(n *number) *int32   { return &n.place }

// Random operations are compared with a list.
func TestFirstElementPrecedesAllOthers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var h Heap[*number, byValue]
	var list []*number
	for range 20_000 {
		if n := len(list); n > 0 && rng.IntN(100) < 45 {
			i := rng.IntN(n)
			h.Remove(list[i])
			require.Zero(t, list[i].place)
			list = slices.Delete(list, i, i+1)
		} else {
			list = append(list, &number{value: rng.IntN(50)})
			h.Put(list[n])
		}
		require.Len(t, h, len(list))
		for i, n := range h {
			require.EqualValues(t, i+1, n.place)
			require.False(t, byValue{}.Before(n, h[max(0, i-1)/2]))
		}
		if len(list) > 200 {
			clear(h)
			h, list = h[:0], nil
		}
	}
}
