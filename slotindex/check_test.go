package slotindex

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Check must detect every kind of inconsistency.
func TestCheckDetectsEveryInconsistency(t *testing.T) {
	for name, damage := range map[string]func(x *Index){
		"live count":           func(x *Index) { x.live++ },
		"free count":           func(x *Index) { x.free-- },
		"slot position":        func(x *Index) { x.slots[0].at++ },
		"slot state":           func(x *Index) { x.slots[0].state = taken; x.free-- },
		"slot order":           func(x *Index) { x.slots[1].id = 0 },
		"members of a class":   func(x *Index) { x.slots[0].class.members = x.slots[0].class.members[:1] },
		"slots of a class":     func(x *Index) { x.slots[0].class.slots++ },
		"ref of a slot":        func(x *Index) { x.slots[0].ref++ },
		"free of a class":      func(x *Index) { x.slots[0].class.free = x.slots[0].class.free[:1] },
		"head of a class":      func(x *Index) { x.slots[0].class.head++ },
		"least of a class":     func(x *Index) { x.slots[0].class.least = 2 },
		"order of free slots":  func(x *Index) { slices.Reverse(x.slots[0].class.free) },
		"place of a free slot": func(x *Index) { x.slots[0].place++ },
		"capacity":             func(x *Index) { x.types[0].capacity-- },
		"head in a tree":       func(x *Index) { x.types[0].classes[0].head++ },
		"raised types":         func(x *Index) { x.slots[0].class.raised = append(x.slots[0].class.raised, 0) },
		"size in a tree":       func(x *Index) { x.types[0].classes[0].size++ },
		"floor of a class":     func(x *Index) { x.slots[0].class.floor++ },
		"set of a class":       func(x *Index) { x.slots[0].class.set[0].bits |= 2 },
		"best of a tree":       func(x *Index) { x.types[0].classes[0].best = 1 },
		"best of a subtree":    func(x *Index) { x.types[0].classes[1].best = 0 },
		"position of a class":  func(x *Index) { x.slots[0].class.at[0]++ },
		"name of a type":       func(x *Index) { x.byName["a"] = 1 },
		"forgotten type":       func(x *Index) { x.types[0].name = "" },
	} {
		t.Run(name, func(t *testing.T) {
			x := New()
			x.Add(1, []string{"a"})
			x.Add(2, []string{"a"})
			x.Add(3, []string{"a", "b"})
			require.NoError(t, x.Check())
			damage(x)
			require.Error(t, x.Check())
		})
	}
}
