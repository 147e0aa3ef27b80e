package permits

import (
	"cmp"
	"slices"
)

// refBook makes the decisions of a Book with loops over all classes. It knows all waiting jobs.
type refBook struct {
	config  Config
	limits  []Limit
	types   map[string]Type
	classes map[Class]*refClass
	permits map[int64]*refPermit
	starts  map[string][]refStart
	fence   int64
	now     int64
}

type refClass struct {
	Class
	needs          []Need
	jobs           []Job
	at             string // the key where it waits; "" = aside
	old, keep      bool
	passed, wakeAt int64
	timer          bool
}

type refPermit struct {
	Class
	Job
	fence   int64
	started bool
	kept    int64
	checkAt int64
}

type refStart struct{ until, cost int64 }

func newRefBook(c Config, list []Limit) *refBook {
	return &refBook{config: c, limits: list, classes: map[Class]*refClass{}, permits: map[int64]*refPermit{}, starts: map[string][]refStart{}, fence: c.FirstFence}
}

func (r *refBook) limit(name string) Limit {
	best, length := defaultLimit, -1
	for _, l := range r.limits {
		n := len(l.Key)
		switch {
		case l.Key == name:
			return l
		case l.Key[n-1] == '*' && len(name) >= n-1 && name[:n-1] == l.Key[:n-1] && n > length:
			best, length = l, n
		}
	}
	return best
}

func (r *refBook) rank(c *refClass) position {
	return position{c.jobs[0].RunAt - int64(c.Priority)*r.config.PerPriority, c.jobs[0].ID}
}

func (r *refBook) add(name Class, j Job) {
	c := r.classes[name]
	if c == nil {
		needs, _ := Parse(name.Keys)
		c = &refClass{Class: name, needs: needs}
		r.classes[name] = c
	}
	c.jobs = append(c.jobs, j)
	slices.SortFunc(c.jobs, Job.compare)
	if c.jobs[0] == j {
		r.file(c)
	}
}

// file decides again where a class waits.
func (r *refBook) file(c *refClass) {
	c.at, c.old, c.timer = "", false, false
	if len(c.jobs) == 0 {
		delete(r.classes, c.Class)
		return
	}
	if r.types != nil && r.types[c.Type].Most == 0 {
		return
	}
	for _, n := range c.needs {
		l := r.limit(n.Key)
		cost := max(n.Cost, 1)
		if l.Capacity == 0 || l.Capacity > 0 && cost > l.Capacity || l.Rate > 0 && cost > l.Rate {
			return
		}
	}
	if c.passed > r.now {
		c.wakeAt, c.timer = c.passed, true
		return
	}
	c.at = c.needs[0].Key
	if len(c.needs) > 1 {
		c.wakeAt = c.jobs[0].RunAt + r.config.Patience
		c.old = c.wakeAt <= r.now
		c.timer = !c.old
	}
}

// ordered returns the classes that wait, by their heads.
func (r *refBook) ordered() []*refClass {
	var list []*refClass
	for _, c := range r.classes {
		if len(c.jobs) > 0 {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(x, y *refClass) int {
		p, q := r.rank(x), r.rank(y)
		return cmp.Or(cmp.Compare(p.rank, q.rank), cmp.Compare(p.id, q.id))
	})
	return list
}

func (r *refBook) advance(now int64) {
	r.now = max(r.now, now)
	r.expire()
	for {
		var due []*refClass
		for _, c := range r.ordered() {
			if c.timer && c.wakeAt <= r.now {
				due = append(due, c)
			}
		}
		if len(due) == 0 {
			return
		}
		for _, c := range due {
			r.file(c)
		}
	}
}

// expire forgets starts that no window counts.
func (r *refBook) expire() {
	for name, starts := range r.starts {
		l := r.limit(name)
		r.starts[name] = slices.DeleteFunc(starts, func(s refStart) bool { return l.Rate == 0 || s.until+l.Per <= r.now })
	}
}

// admits reports whether a key has room for a class.
func (r *refBook) admits(c *refClass, n Need) bool {
	l := r.limit(n.Key)
	var held, holders, alone, starting, kept int64
	for _, p := range r.permits {
		needs, _ := Parse(p.Keys)
		for _, o := range needs {
			if o.Key != n.Key {
				continue
			}
			holders++
			held += max(o.Cost, 0)
			if o.Cost == All {
				alone++
			}
			if !p.started {
				starting += max(o.Cost, 1)
			}
		}
	}
	for _, o := range r.ordered() { // the first old class keeps room
		i := slices.IndexFunc(o.needs, func(m Need) bool { return m.Key == n.Key })
		if i < 0 || !o.old || o.at == "" || l.Rate == 0 && slices.ContainsFunc(o.needs, func(m Need) bool { return r.limit(m.Key).Rate > 0 }) {
			continue
		}
		if o != c && r.rank(o).before(r.rank(c)) {
			if o.needs[i].Cost == All || n.Cost == All {
				return false
			}
			kept = o.needs[i].Cost
		}
		break
	}
	var sum int64
	for _, s := range r.starts[n.Key] {
		if s.until+l.Per > r.now {
			sum += s.cost
		}
	}
	switch {
	case alone > 0, n.Cost == All && holders > 0:
		return false
	case n.Cost != All && l.Capacity != Unlimited && held+kept+n.Cost > l.Capacity:
		return false
	case l.Rate > 0 && starting+sum+kept+max(n.Cost, 1) > l.Rate:
		return false
	}
	return true
}

// admit decides on all jobs: it examines all heads again after each change.
func (r *refBook) admit() []Admission {
	var admitted []Admission
	for {
		changed := false
		closed := map[string]bool{} // keys that refuse their first class
		for _, c := range r.ordered() {
			if c.at == "" || closed[c.at] {
				continue
			}
			i := slices.IndexFunc(c.needs, func(n Need) bool { return n.Key == c.at })
			if !r.admits(c, c.needs[i]) {
				closed[c.at] = true
				continue
			}
			refusing := slices.IndexFunc(c.needs, func(n Need) bool { return closed[n.Key] || !r.admits(c, n) })
			changed = true
			if refusing < 0 {
				admitted = append(admitted, r.grant(c))
				break
			}
			c.at = c.needs[refusing].Key
			break
		}
		if !changed {
			return admitted
		}
	}
}

func (r *refBook) grant(c *refClass) Admission {
	r.fence++
	a := Admission{Class: c.Class, Job: c.jobs[0], Fence: r.fence}
	p := &refPermit{Class: c.Class, Job: c.jobs[0], fence: r.fence, checkAt: r.now + slotWait}
	if c.keep {
		p.kept, c.keep = r.now+r.config.Patience, false
	}
	r.permits[p.ID] = p
	c.jobs = c.jobs[1:]
	r.file(c)
	return a
}

func (r *refBook) start(id, at int64) {
	p := r.permits[id]
	if p.started {
		return
	}
	p.started = true
	needs, _ := Parse(p.Keys)
	for _, n := range needs {
		if l := r.limit(n.Key); l.Rate > 0 {
			width := max(l.Per/windowParts, 1)
			r.starts[n.Key] = append(r.starts[n.Key], refStart{(max(at, r.now)/width + 1) * width, max(n.Cost, 1)})
		}
	}
}

func (r *refBook) withdrawals() []int64 {
	var ids []int64
	for id, p := range r.permits {
		if p.started || p.checkAt > r.now {
			continue
		}
		p.checkAt = r.now + slotWait
		if p.kept > r.now {
			continue
		}
		needs, _ := Parse(p.Keys)
		for _, c := range r.classes {
			if c.Type != p.Type && slices.ContainsFunc(needs, func(n Need) bool { return n.Key == c.at }) {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

func (r *refBook) withdrawn(id int64) {
	p := r.permits[id]
	delete(r.permits, id)
	c := r.classes[p.Class]
	if c == nil {
		needs, _ := Parse(p.Keys)
		c = &refClass{Class: p.Class, needs: needs}
		r.classes[p.Class] = c
	}
	c.passed, c.keep = r.now+r.config.Patience, true
	c.jobs = slices.Insert(c.jobs, 0, p.Job)
	slices.SortFunc(c.jobs, Job.compare)
	r.file(c)
}

func (r *refBook) again() {
	for name := range r.starts {
		if r.limit(name).Rate == 0 {
			delete(r.starts, name)
		}
	}
	for _, c := range r.ordered() {
		r.file(c)
	}
}
