package backend

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hbollon/go-edlib"

	"github.com/dispatcherd/dispatcherd/actor"
)

// offeredTypes bounds the list of types in an explanation.
const offeredTypes = 16

// offered returns the types that slots of any dispatcher support. If few characters of one differ from typ, it is similar, and the names
// most similar to typ are first. Otherwise they are in the order of the alphabet.
func (b *Backend) offered(typ string) (names []string, similar string) {
	distances := map[string]int{}
	for _, slots := range []map[string]int{actor.Capacities(b.Loop), b.Others()} {
		for name, n := range slots { // order-free: sorted below
			if n > 0 {
				distances[name] = distance(typ, name)
			}
		}
	}
	names = slices.SortedFunc(maps.Keys(distances), func(x, y string) int {
		return cmp.Or(cmp.Compare(distances[x], distances[y]), cmp.Compare(x, y))
	})
	if len(names) > 0 && distances[names[0]] <= min(max(2, len(typ)/3), len(typ)-1) {
		similar = names[0]
	} else {
		slices.Sort(names)
	}
	return names[:min(len(names), offeredTypes)], similar
}

// distance is the number of characters that differ, without their case.
func distance(a, b string) int {
	return edlib.OSADamerauLevenshteinDistance(strings.ToLower(a), strings.ToLower(b))
}
