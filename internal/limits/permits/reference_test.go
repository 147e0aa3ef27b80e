package permits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// refBook makes the decisions of a Book with loops over all classes. It knows all waiting jobs.
type refBook struct {
	config  Config
	limits  []Limit
	types   map[string]Type
	classes map[Class]*refClass
	permits map[int64]*refPermit
	starts  map[string][]refStart
	marked  map[string]bool // keys that may exceed their limits
	busy    map[string]int64
	fence   int64
	now     int64
}

type refClass struct {
	Class
	needs          []Need
	jobs           []Job
	at             string // the key where it waits; "" = aside
	sequence       bool
	old, keep      bool
	passed, wakeAt int64
	timer          bool
}

type refPermit struct {
	Class
	Job
	fence      int64
	dispatcher int32
	started    bool
	admitted   int64
	kept       int64
	checkAt    int64
	recalled   bool
	again      bool
}

type refStart struct {
	at, cost   int64
	dispatcher int32
}

// until returns when a start leaves the window of a length: a part ends it.
func (s refStart) until(per int64) int64 {
	width := max(per/windowParts, 1)
	return (s.at/width+1)*width + per + per/driftPart
}

func newRefBook(c Config, list []Limit) *refBook {
	return &refBook{
		config:  c,
		limits:  list,
		classes: map[Class]*refClass{},
		permits: map[int64]*refPermit{},
		starts:  map[string][]refStart{},
		marked:  map[string]bool{},
		busy:    map[string]int64{},
		fence:   c.FirstFence,
	}
}

// typeKey names the bound of a type like a key.
func typeKey(typ string) string { return " " + typ }

func (r *refBook) limit(name string) Limit {
	if typ, isType := strings.CutPrefix(name, " "); isType {
		if r.types == nil {
			return Limit{Capacity: Unlimited}
		}
		return Limit{Capacity: int64(r.types[typ].Most)}
	}
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
	if c.Retry != 0 {
		return position{c.jobs[0].RunAt - 1<<60, c.jobs[0].ID}
	}
	return position{c.jobs[0].RunAt - int64(c.Priority)*r.config.PerPriority, c.jobs[0].ID}
}

func (r *refBook) class(name Class) *refClass {
	c := r.classes[name]
	if c == nil {
		needs, _ := Parse(name.Keys)
		c = &refClass{Class: name, needs: needs}
		r.classes[name] = c
	}
	return c
}

func (r *refBook) add(name Class, j Job) {
	c := r.class(name)
	c.jobs = append(c.jobs, j)
	slices.SortFunc(c.jobs, Job.compare)
	if c.jobs[0] == j {
		r.file(c)
	}
}

func (r *refBook) gone(name Class, id int64) {
	c := r.classes[name]
	first := c.jobs[0].ID == id
	c.jobs = slices.DeleteFunc(c.jobs, func(j Job) bool { return j.ID == id })
	if first {
		r.file(c)
	}
}

// file decides again where a class waits.
func (r *refBook) file(c *refClass) {
	c.at, c.old, c.timer, c.sequence = "", false, false, false
	if len(c.jobs) == 0 {
		delete(r.classes, c.Class)
		return
	}
	scoped := false
	at := ""
	for _, n := range c.needs {
		l := r.limit(n.Key)
		cost := max(n.Cost, 1)
		if l.Capacity == 0 || l.Capacity > 0 && cost > l.Capacity || l.Rate > 0 && cost > l.Rate {
			return
		}
		scoped = scoped || l.Scope == Dispatcher
		if c.Retry != 0 && l.OnRetry == Wait && at == "" {
			at = n.Key
		}
	}
	c.sequence = at != ""
	due := c.jobs[0].RunAt <= r.now
	if c.sequence {
		c.at, c.old, c.timer, c.wakeAt = at, due, !due, c.jobs[0].RunAt
		return
	}
	if r.limit(typeKey(c.Type)).Capacity == 0 || scoped && len(r.types[c.Type].Dispatchers) == 0 {
		return
	}
	if c.passed > r.now || !due {
		c.wakeAt, c.timer = max(c.passed, c.jobs[0].RunAt), true
		return
	}
	c.at = c.needs[0].Key
}

// refused makes a class that waits for several things become old.
func (r *refBook) refused(c *refClass) {
	if c.sequence || c.old || c.timer || len(c.needs) == 1 && c.at != typeKey(c.Type) {
		return
	}
	c.wakeAt = c.jobs[0].RunAt + r.config.Patience
	c.old = c.wakeAt <= r.now
	c.timer = !c.old
}

// ordered returns the classes that wait, by their heads.
func (r *refBook) ordered() []*refClass {
	var list []*refClass
	for _, c := range r.classes {
		list = append(list, c)
	}
	slices.SortFunc(list, func(x, y *refClass) int {
		p, q := r.rank(x), r.rank(y)
		return cmp.Or(cmp.Compare(p.rank, q.rank), cmp.Compare(p.id, q.id))
	})
	return list
}

func (r *refBook) advance(now int64) {
	r.now = max(r.now, now)
	for name, starts := range r.starts {
		l := r.limit(name)
		r.starts[name] = slices.DeleteFunc(starts, func(s refStart) bool { return l.Rate == 0 || s.until(l.Per) <= r.now })
	}
	for _, c := range r.ordered() {
		switch {
		case !c.timer || c.wakeAt > r.now:
		case c.at == "":
			r.file(c)
		default:
			c.old, c.timer = true, false
		}
	}
}

// keeps reports whether a class keeps room at a key.
func (r *refBook) keeps(c *refClass, key string) bool {
	l := r.limit(key)
	switch {
	case c.at == "":
		return false
	case c.sequence && l.OnRetry == Wait:
		return true
	case !c.old:
		return false
	case c.at == typeKey(c.Type):
		list := r.ordered()
		return list[slices.IndexFunc(list, func(o *refClass) bool { return o.at == c.at })] == c
	}
	return r.limit(c.at).Rate == 0 || l.Rate > 0
}

// keeper returns the class for which a key keeps room, and its cost.
func (r *refBook) keeper(key string) (*refClass, int64) {
	for _, o := range r.ordered() {
		i := slices.IndexFunc(o.needs, func(m Need) bool { return m.Key == key })
		if i >= 0 && r.keeps(o, key) {
			return o, o.needs[i].Cost
		}
	}
	return nil, 0
}

// roomAt reports whether a dispatcher has room at a key for a class, and the cost of its permits there.
func (r *refBook) roomAt(c *refClass, n Need, dispatcher int32) (room bool, own int64) {
	l := r.limit(n.Key)
	here := func(d int32) bool { return l.Scope == Cluster || d == 0 || d == dispatcher }
	var held, holders, alone, starting, kept int64
	for _, p := range r.permits {
		needs, _ := Parse(p.Keys)
		if !p.started && here(p.dispatcher) {
			needs = append(needs, Need{typeKey(p.Type), 1})
		}
		for _, o := range needs {
			if o.Key != n.Key || !here(p.dispatcher) {
				continue
			}
			holders++
			held += max(o.Cost, 0)
			if p.dispatcher == dispatcher {
				own += max(o.Cost, 0)
			}
			if o.Cost == All {
				alone++
			}
			if !p.started {
				starting += max(o.Cost, 1)
			}
		}
	}
	if o, cost := r.keeper(n.Key); o != nil && o != c && r.rank(o).before(r.rank(c)) {
		if cost == All || n.Cost == All || o.sequence && l.OnRetry == Wait {
			return false, own
		}
		kept = cost
	}
	var sum int64
	for _, s := range r.starts[n.Key] {
		if here(s.dispatcher) {
			sum += s.cost
		}
	}
	switch {
	case alone > 0, n.Cost == All && holders > 0:
		return false, own
	case n.Cost != All && l.Capacity != Unlimited && held+kept+n.Cost > l.Capacity:
		return false, own
	case l.Rate > 0 && starting+sum+kept+max(n.Cost, 1) > l.Rate:
		return false, own
	}
	return true, own
}

// choose returns the dispatcher that supports the type of a class and has room at its keys, or 0.
func (r *refBook) choose(c *refClass) int32 {
	chosen, least, busy := int32(0), int64(0), false
	for _, d := range r.types[c.Type].Dispatchers {
		var held int64
		ok := true
		for _, n := range c.needs {
			if r.limit(n.Key).Scope == Dispatcher {
				room, own := r.roomAt(c, n, d)
				ok, held = ok && room, held+own
			}
		}
		is := r.busy[fmt.Sprint(c.Type, d)] > r.now
		if ok && (chosen == 0 || busy && !is || busy == is && held < least) {
			chosen, least, busy = d, held, is
		}
	}
	return chosen
}

// admits reports whether a key has room for a class.
func (r *refBook) admits(c *refClass, n Need) bool {
	if r.limit(n.Key).Scope == Dispatcher {
		return r.choose(c) != 0
	}
	room, _ := r.roomAt(c, n, 0)
	return room
}

// refuses returns the key that refuses a class, or "" and the dispatcher that has room.
func (r *refBook) refuses(c *refClass, closed map[string]bool) (string, int32) {
	refusing, scoped := "", false
	for _, n := range append(slices.Clone(c.needs), Need{typeKey(c.Type), 1}) {
		scoped = scoped || r.limit(n.Key).Scope == Dispatcher
		if n.Key == c.at && !r.admits(c, n) {
			return c.at, 0
		}
		if n.Key != c.at && refusing == "" && (closed[n.Key] || !r.admits(c, n)) {
			refusing = n.Key
		}
	}
	if refusing != "" || !scoped {
		return refusing, 0
	}
	return "", r.choose(c)
}

// admit decides on all jobs: it examines all heads again after each change.
func (r *refBook) admit() []Permit {
	var admitted []Permit
	r.fence++
	for {
		changed := false
		closed := map[string]bool{} // keys that refuse their first class
		for _, c := range r.ordered() {
			if c.at == "" || closed[c.at] {
				continue
			}
			if c.jobs[0].RunAt > r.now { // a retry
				closed[c.at] = true
				continue
			}
			refusing, dispatcher := r.refuses(c, closed)
			if refusing == "" {
				admitted = append(admitted, r.grant(c, dispatcher))
				changed = true
				break
			}
			if refusing == c.at || c.sequence {
				closed[c.at] = true
				r.refused(c)
				continue
			}
			c.at = refusing
			r.refused(c)
			changed = true
			break
		}
		if !changed {
			return admitted
		}
	}
}

func (r *refBook) grant(c *refClass, dispatcher int32) Permit {
	a := Permit{Class: c.Class, Job: c.jobs[0], Fence: r.fence, Dispatcher: dispatcher}
	p := &refPermit{Class: c.Class, Job: c.jobs[0], fence: r.fence, dispatcher: dispatcher, admitted: r.now, checkAt: r.now + slotWait}
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
	if at < p.admitted {
		at = r.now
	}
	p.started = true
	delete(r.busy, fmt.Sprint(p.Type, p.dispatcher))
	needs, _ := Parse(p.Keys)
	for _, n := range needs {
		r.count(n.Key, p.dispatcher, at, max(n.Cost, 1))
	}
}

func (r *refBook) count(key string, dispatcher int32, at, cost int64) {
	l := r.limit(key)
	if l.Rate == 0 {
		return
	}
	if l.Scope == Cluster {
		dispatcher = 0
	}
	if s := (refStart{at, cost, dispatcher}); s.until(l.Per) > r.now {
		r.starts[key] = append(r.starts[key], s)
	}
}

// end ends the permit of a row.
func (r *refBook) end(id int64) {
	r.start(id, r.now)
	delete(r.permits, id)
}

// returned adds a row that waits again, and reports whether it keeps its precedence.
func (r *refBook) returned(name Class, j Job) bool {
	name.Retry = 0
	needs, _ := Parse(name.Keys)
	waits := slices.ContainsFunc(needs, func(n Need) bool { return r.limit(n.Key).OnRetry == Wait })
	if waits {
		name.Retry = j.ID
	}
	r.add(name, j)
	return waits
}

// hold adds a permit, or moves it.
func (r *refBook) hold(p *refPermit) {
	r.permits[p.ID] = p
	r.mark(p)
}

func (r *refBook) mark(p *refPermit) {
	needs, _ := Parse(p.Keys)
	for _, n := range needs {
		r.marked[n.Key] = true
	}
}

// within returns the permits that have not started, in an order.
func (r *refBook) unstarted(compare func(x, y *refPermit) int) (list []*refPermit) {
	for _, p := range r.permits {
		if !p.started {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, compare)
	return list
}

// over reports whether the permits at a key of one that has not started exceed the limit, without those that are withdrawn.
func (r *refBook) over(p *refPermit, without map[*refPermit]bool) bool {
	needs, _ := Parse(p.Keys)
	for _, n := range needs {
		l := r.limit(n.Key)
		here := func(d int32) bool { return l.Scope == Cluster || d == 0 || d == p.dispatcher }
		var held, holders, starting int64
		for _, o := range r.permits {
			others, _ := Parse(o.Keys)
			i := slices.IndexFunc(others, func(m Need) bool { return m.Key == n.Key })
			if i < 0 || without[o] || !here(o.dispatcher) {
				continue
			}
			holders++
			held += max(others[i].Cost, 0)
			if !o.started {
				starting += max(others[i].Cost, 1)
			}
		}
		for _, s := range r.starts[n.Key] {
			if here(s.dispatcher) {
				starting += s.cost
			}
		}
		if l.Capacity == 0 && holders > 0 || l.Capacity != Unlimited && held > l.Capacity || l.Rate > 0 && starting > l.Rate {
			return true
		}
	}
	return false
}

// recall marks the permits that exceed a limit, those with the last ranks first.
func (r *refBook) recall() {
	without := map[*refPermit]bool{}
	for _, p := range r.unstarted(func(x, y *refPermit) int {
		p, q := x.position(x.Job, r.config.PerPriority), y.position(y.Job, r.config.PerPriority)
		return cmp.Or(cmp.Compare(q.rank, p.rank), cmp.Compare(q.id, p.id))
	}) {
		needs, _ := Parse(p.Keys)
		if !slices.ContainsFunc(needs, func(n Need) bool { return r.marked[n.Key] }) {
			continue
		}
		if p.recalled = r.over(p, without); p.recalled {
			without[p] = true
			p.checkAt = r.now
		}
	}
	clear(r.marked)
}

// elsewhere reports whether a row that found no slot at its dispatcher moves.
func (r *refBook) elsewhere(p *refPermit) bool {
	if p.dispatcher == 0 {
		return false
	}
	r.busy[fmt.Sprint(p.Type, p.dispatcher)] = r.now + busyFor
	c := &refClass{Class: p.Class, jobs: []Job{p.Job}}
	c.needs, _ = Parse(p.Keys)
	to := r.choose(c)
	if to == 0 || to == p.dispatcher {
		return false
	}
	var there, here, own int64
	for _, n := range c.needs {
		if r.limit(n.Key).Scope == Dispatcher {
			_, h := r.roomAt(c, n, to)
			there += h
			_, h = r.roomAt(c, n, p.dispatcher)
			here, own = here+h, own+max(n.Cost, 0)
		}
	}
	return r.busy[fmt.Sprint(p.Type, to)] <= r.now || there+own < here
}

func (r *refBook) withdrawals() []int64 {
	var ids []int64
	r.recall()
	for _, p := range r.unstarted(func(x, y *refPermit) int {
		return cmp.Or(cmp.Compare(x.checkAt, y.checkAt), cmp.Compare(x.ID, y.ID))
	}) {
		if p.checkAt > r.now {
			continue
		}
		p.checkAt = r.now + slotWait
		p.again = p.recalled || r.misplaced(p) || r.elsewhere(p)
		if p.again || p.Retry == 0 && p.kept <= r.now && r.needed(p) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

func (r *refBook) misplaced(p *refPermit) bool {
	return p.dispatcher != 0 && !slices.Contains(r.types[p.Type].Dispatchers, p.dispatcher)
}

func (r *refBook) needed(p *refPermit) bool {
	needs, _ := Parse(p.Keys)
	for _, n := range needs {
		for _, c := range r.classes {
			if c.Type != p.Type && c.at == n.Key {
				return true
			}
		}
		if o, _ := r.keeper(n.Key); o != nil && o.sequence && o.Type != p.Type {
			return true
		}
	}
	return false
}

func (r *refBook) withdrawn(id int64) {
	p := r.permits[id]
	delete(r.permits, id)
	c := r.class(p.Class)
	if p.Retry == 0 && !p.again {
		c.passed, c.keep = r.now+r.config.Patience, true
	}
	c.jobs = append(c.jobs, p.Job)
	slices.SortFunc(c.jobs, Job.compare)
	r.file(c)
}

func (r *refBook) setLimits(list []Limit) {
	names := map[string]bool{}
	for _, c := range r.classes {
		for _, n := range c.needs {
			names[n.Key] = true
		}
	}
	for _, p := range r.permits {
		needs, _ := Parse(p.Keys)
		for _, n := range needs {
			names[n.Key] = true
		}
	}
	before := map[string]Limit{}
	for name := range names {
		before[name] = r.limit(name)
	}
	former := map[string]Limit{}
	for name := range r.starts {
		former[name] = r.limit(name)
	}
	r.limits = list
	for name := range names {
		if before[name] != r.limit(name) {
			r.marked[name] = true
		}
	}
	for name, starts := range r.starts {
		l := r.limit(name)
		if l.Rate == 0 {
			delete(r.starts, name)
			continue
		}
		latest := func(s refStart) int64 { // of the starts that the former window counted in the same part
			for _, o := range starts {
				if o.dispatcher == s.dispatcher && o.until(former[name].Per) == s.until(former[name].Per) {
					s.at = max(s.at, o.at)
				}
			}
			return s.at
		}
		var counted []refStart
		for _, s := range starts {
			s.at = latest(s)
			if l.Scope == Cluster {
				s.dispatcher = 0
			}
			if s.until(l.Per) > r.now {
				counted = append(counted, s)
			}
		}
		r.starts[name] = counted
	}
	for _, c := range r.ordered() {
		if slices.ContainsFunc(c.needs, func(n Need) bool { return before[n.Key] != r.limit(n.Key) }) {
			r.file(c)
		}
	}
}

func (r *refBook) setTypes(types map[string]Type) {
	before := r.types
	supported := map[string]bool{}
	for _, typ := range testTypes {
		supported[typ] = r.limit(typeKey(typ)).Capacity != 0
	}
	r.types = types
	for _, c := range r.ordered() {
		if supported[c.Type] != (r.limit(typeKey(c.Type)).Capacity != 0) || !slices.Equal(before[c.Type].Dispatchers, types[c.Type].Dispatchers) {
			r.file(c)
		}
	}
}
