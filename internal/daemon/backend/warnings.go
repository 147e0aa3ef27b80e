package backend

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// mostWarnings bounds the warnings of one answer.
const mostWarnings = 20

// warnings says why jobs that are inserted cannot run now or can never run: no slot of any dispatcher supports the type, or a key never
// admits the cost. A limit with the capacity 0 is a pause and causes no warning. Without an answer of Postgres, limits cause none.
func (b *Backend) warnings(ctx context.Context, jobs ...contract.Needs) (list []string) {
	types, costs := map[string]bool{}, map[string]int64{}
	for _, j := range jobs {
		types[j.Type] = true
		needs, _ := permits.Parse(j.Keys) // whoever inserts the job checks them
		for _, n := range needs {
			if n.Cost > 1 { // a job that needs all of a key has no cost
				costs[n.Key] = max(costs[n.Key], n.Cost)
			}
		}
	}
	list = b.doubts(slices.Collect(maps.Keys(types))...) // order-free: they are sorted there
	if len(costs) > 0 {
		limits, _ := about(ctx, limitstore.Keys{DB: b.Pool}.Limits, slices.Collect(maps.Keys(costs))) // order-free: a set
		for key, l := range limits {                                                                  // order-free: they are sorted below
			if most := l.Most(); most > 0 && costs[key] > most {
				list = append(list, fmt.Sprintf(
					"the cost %d of key %q exceeds its limit %d, so the job can never run: raise it ('dispatcherd limit set %s capacity=%[1]d')",
					costs[key], key, most, l.Key))
			}
		}
	}
	slices.Sort(list)
	return list[:min(len(list), mostWarnings)]
}
