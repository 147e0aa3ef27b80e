package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
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

// keyJudge checks jobs with keys. It shares only the parser of keys with the decisions.
type keyJudge struct {
	needs  map[string][]permits.Need // of each value of Row.Keys
	fences map[string]int64          // of the last start, by key with capacity 1
}

func (j *keyJudge) of(r *claimfake.Row) []permits.Need {
	needs, known := j.needs[r.Keys]
	if !known {
		if j.needs == nil {
			j.needs, j.fences = map[string][]permits.Need{}, map[string]int64{}
		}
		needs, _ = permits.Parse(r.Keys) // keyed.give creates no invalid value
		j.needs[r.Keys] = needs
	}
	return needs
}

// claimedKeys checks that a job that starts fits its keys beside all running jobs, and that the fence of a key grows.
func (j *judge) claimedKeys(w *world, r *claimfake.Row) {
	if r.Keys == "" {
		return
	}
	w.stats.Keyed++
	for _, n := range j.keys.of(r) {
		cost, capacity := n.Cost, w.keys.limits[n.Key].Capacity
		for _, o := range w.table.Keyed() {
			if o == r || o.Status != dispatcherd.Running {
				continue
			}
			for _, m := range j.keys.of(o) {
				if m.Key != n.Key {
					continue
				}
				if n.Cost == permits.All || m.Cost == permits.All {
					w.violate("key over: job %d (%s) starts beside job %d (%s), and one of them needs all of %s", r.ID, r.Keys, o.ID, o.Keys, n.Key)
				}
				cost += m.Cost
			}
		}
		if n.Cost != permits.All && cost > capacity {
			w.violate("key over: job %d (%s) starts, so that jobs with a cost of %d run on key %s of capacity %d", r.ID, r.Keys,
				cost, n.Key, capacity)
		}
		if capacity != 1 {
			continue
		}
		if r.Fence <= j.keys.fences[n.Key] {
			w.violate("key over: job %d (%s) starts with fence %d after fence %d", r.ID, r.Keys, r.Fence, j.keys.fences[n.Key])
		}
		j.keys.fences[n.Key] = r.Fence
	}
}

// admitted checks that the jobs of a class get their permits in order, and that none passes a job that waits for its
// retry at a key with OnRetry Wait.
func (j *judge) admitted(w *world, r *claimfake.Row) {
	for _, o := range w.table.Keyed() {
		switch {
		case o == r || o.Status != dispatcherd.Pending || o.Fence > 0 || o.Locked():
		case o.Fence < 0:
			j.passedRetry(w, r, o)
		case o.Keys != r.Keys || o.Type != r.Type || o.Priority != r.Priority || r.Fence < 0 && j.sequential(w, r):
		case o.Key().Less(r.Key()) && o.RunAt < w.dbNow()-int64(slack) && w.now-w.job(o.ID).visible > w.notices():
			j.overtaken(w, r, w.job(o.ID))
		}
	}
}

// overtaken checks that no job overtakes another one of its class. One whose class an operator has changed, or that has waited
// for other jobs, is found when it is the first of its class.
func (j *judge) overtaken(w *world, r *claimfake.Row, o *job) {
	if o.overtaken == 0 {
		o.overtaken = w.now
	}
	if w.job(r.ID).moved {
		return // it is admitted as one of its former class
	}
	if !o.moved || w.now-o.overtaken > w.notices() {
		w.violate("key order: job %d (%s) is admitted before job %d of the same class, which waits for %v",
			r.ID, r.Keys, o.insert.ID, (w.now - o.visible).duration())
	}
}

func (j *judge) sequential(w *world, r *claimfake.Row) bool {
	for _, n := range j.keys.of(r) {
		if w.keys.limits[n.Key].OnRetry == permits.Wait {
			return true
		}
	}
	return false
}

// passedRetry checks that a job does not pass a job that has returned.
func (j *judge) passedRetry(w *world, r, returned *claimfake.Row) {
	for _, n := range j.keys.of(r) {
		l := w.keys.limits[n.Key]
		if l.Capacity != 1 || l.OnRetry != permits.Wait {
			continue
		}
		for _, m := range j.keys.of(returned) {
			if m.Key == n.Key && (r.Fence >= 0 || returned.Key().Less(r.Key())) {
				w.violate("key order: job %d (%s) is admitted while job %d (%s) waits for its retry", r.ID, r.Keys, returned.ID, returned.Keys)
			}
		}
	}
}

// notices returns how long the controller may take to notice a job that was committed late: it reads such jobs each second.
// A fault may delay the read.
func (w *world) notices() moment {
	if w.undisturbed() {
		return 2 * second
	}
	return 2 * slack
}
