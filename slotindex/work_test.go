package slotindex

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// distinct returns an index with slots of size types each. All sets are different and
// have all types but one in common.
func distinct(slots, size int) (*Index, []Ref) {
	x, refs := New(), make([]Ref, slots)
	for i := range refs {
		var types []string
		for k := range size + 1 {
			if k != i {
				types = append(types, fmt.Sprintf("t%05d", k))
			}
		}
		refs[i] = x.Add(dispatcherd.SlotID(i+1), types)
	}
	return x, refs
}

func TestWorkOfRemovingASlotIsProportionalToItsTypes(t *testing.T) {
	const size = 1000
	for _, slots := range []int{50, 200, 800} {
		for _, order := range []string{"first to last", "last to first"} {
			x, refs := distinct(slots, size)
			before := x.Work()
			for i := range refs {
				if order == "last to first" {
					i = slots - 1 - i
				}
				x.Remove(refs[i])
			}
			perType := float64(x.Work()-before) / float64(slots*size)
			require.Less(t, perType, 14.0, "%d slots, %s: at most 10 levels of a tree and 4 counters", slots, order)
		}
	}
}

func TestWorkOfTakingReleasingAndRetiringASlotDoesNotDependOnItsTypes(t *testing.T) {
	const size = 4000
	x, refs := distinct(100, size)
	typ, _ := x.Lookup("t03000")
	before := x.Work()
	for range 100 {
		for range 50 {
			x.takeBest(typ)
		}
		for _, r := range refs[:50] {
			x.Release(r)
		}
	}
	require.Less(t, x.Work()-before, 100*50*40)
	before = x.Work()
	for _, r := range refs {
		x.Retire(r)
	}
	require.Zero(t, x.Work()-before)
	require.False(t, x.HasFree(typ))
	require.Equal(t, 100, x.Capacity(typ))
	require.NoError(t, x.Check())
}

func TestWorkOfTakingASlotDoesNotDependOnTheNumberOfEquallySpecialisedClasses(t *testing.T) {
	x := New()
	for i := range 4000 {
		x.Add(dispatcherd.SlotID(i), []string{"hot", fmt.Sprintf("t%04d", i)})
	}
	hot, _ := x.Lookup("hot")
	before := x.Work()
	for range 1000 {
		x.takeBest(hot)
	}
	require.Less(t, x.Work()-before, 1000*30)
}

func TestTreesOfEqualLengthDoNotGrowForTheSameSlot(t *testing.T) {
	x, _ := distinct(400, 1000)
	full := 0
	for i := range TypeID(len(x.types)) {
		if classes := x.types[i].classes; len(classes) == cap(classes) {
			full++
		}
	}
	require.Less(t, full, 100)
}
