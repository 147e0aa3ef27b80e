package backend

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hbollon/go-edlib"

	"github.com/dispatcherd/dispatcherd/actor"
)

// offeredTypes bounds the list of types in an explanation.
const offeredTypes = 16

// offered returns the types that slots of any dispatcher support. If few characters of one differ from typ, it is similar, and the names
// most similar to typ are first. Otherwise they are in the order of the alphabet.
func (b *Backend) offered(typ string) (names []string, similar string) {
	distances, most := map[string]int{}, min(max(2, len(typ)/3), len(typ)-1) // of a similar name
	for _, slots := range []map[string]int{actor.Capacities(b.Loop), b.Others()} {
		for name, n := range slots { // order-free: sorted below
			if n > 0 {
				distances[name] = distance(typ, name, most)
			}
		}
	}
	names = slices.Sorted(maps.Keys(distances))
	nearer := func(x, y string) int { return cmp.Compare(distances[x], distances[y]) }
	if len(names) > 0 && distances[slices.MinFunc(names, nearer)] <= most {
		slices.SortStableFunc(names, nearer)
		similar = names[0]
	}
	return names[:min(len(names), offeredTypes)], similar
}

// distance is the number of characters that differ, without their case. It is not computed if the lengths alone differ by more than most,
// because each insertion of an unknown type compares all known types.
func distance(a, b string, most int) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if far := utf8.RuneCountInString(a) - utf8.RuneCountInString(b); max(far, -far) > most {
		return most + 1
	}
	return edlib.OSADamerauLevenshteinDistance(a, b)
}
