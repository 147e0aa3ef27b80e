package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/permits"
)

// keyed holds the parameters of the fault Keys.
type keyed struct {
	random random
	share  int64 // inserts of 10,000 with keys; 0 = none
	count  int64 // keys
	limits map[string]permits.Limit
}

// maxKeyed bounds the jobs with keys that wait or run, because each check looks at all of them.
const maxKeyed = 2000

// pickKeys uses its own random source, as pickDetachment does. Announcements of admitted rows may be lost with the
// answer of their statement, so dispatchers that do not poll have no jobs with keys.
func (w *world) pickKeys() {
	c := &w.keys
	c.random.pcg = *rand.NewPCG(w.opt.Seed, 0x6b657973)
	d := &c.random
	if !w.opt.Every && d.below(2) == 0 || w.opt.NoPoll {
		w.faults &^= Keys
	}
	if w.faults&Keys == 0 {
		return
	}
	c.share = []int64{200, 1000, 4000}[d.below(3)]
	c.count = []int64{1, 4, 20}[d.below(3)]
	c.limits = map[string]permits.Limit{}
	var list []permits.Limit
	for n := range c.count {
		l := permits.Limit{Key: keyName(n), Capacity: []int64{1, 1, 2, 5}[d.below(4)]}
		if d.below(3) == 0 {
			l.OnRetry = permits.Wait
		}
		c.limits[l.Key] = l
		list = append(list, l)
	}
	w.table.SetLimits(list)
}

// drift returns by how many microseconds per second a clock of a host runs fast or slow. The clock of a book of permits
// follows that of the database by a ten-thousandth.
func (c *keyed) drift() int64 {
	if c.share > 0 {
		return 50
	}
	return 100_000
}

func keyName(n int64) string { return fmt.Sprintf("key-%d", n) }

// give gives a new row keys.
func (c *keyed) give(r *claimfake.Row) {
	d := &c.random
	if !d.chance(c.share) {
		return
	}
	var words []string
	for range d.between(1, []int64{1, 1, 2, 4}[d.below(4)]) {
		name := keyName(d.below(c.count))
		switch most := c.limits[name].Capacity; {
		case strings.Contains(strings.Join(words, " ")+" ", name):
			continue // the costs would add up beyond the capacity
		case d.below(8) == 0:
			words = append(words, name+"*all")
		case d.below(2) == 0:
			words = append(words, fmt.Sprintf("%s*%d", name, d.between(1, most)))
		default:
			words = append(words, name)
		}
	}
	r.Keys = strings.Join(words, " ")
}
