package backend

import (
	"cmp"
	"slices"

	"github.com/dispatcherd/dispatcherd/actor"
)

// offeredTypes bounds the list of types in an explanation.
const offeredTypes = 16

// offered returns the types that slots of any dispatcher support, the names most similar to
// typ first. similar is the first one if few characters differ.
func (b *Backend) offered(typ string) (names []string, similar string) {
	var others map[string]int
	b.Loop.Ask(func(c *actor.Core) { others = c.OtherCapacity() })
	distances := map[string]int{}
	for _, t := range b.Types().Items {
		if t.Capacity > 0 {
			distances[t.Type] = distance(typ, t.Type)
		}
	}
	for name, slots := range others { // order-free: sorted below
		if slots > 0 {
			distances[name] = distance(typ, name)
		}
	}
	for name := range distances { // order-free: sorted below
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(distances[x], distances[y]), cmp.Compare(x, y))
	})
	names = names[:min(len(names), offeredTypes)]
	if len(names) > 0 && distances[names[0]] <= min(max(2, len(typ)/3), len(typ)-1) {
		similar = names[0]
	}
	return names, similar
}

// distance returns how many bytes must be inserted, removed or replaced to make b from a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
