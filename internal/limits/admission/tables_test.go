package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// row is a live row with keys.
type row struct {
	permits.Class
	permits.Job

	fence      int64 // 0 = it waits, negative = returned
	running    bool
	dispatcher int32 // that runs it, or the only one that may claim it; 0 = none
	startedAt  int64
	since      time.Time // it waits without interruption, and no session has locked it
	attempt    int
}

// part is a record of key_starts.
type part struct {
	key        string
	dispatcher int32
	at         int64
}

// tables are a fake of the tables. Statements are atomic. The judge examines each change of a fence.
type tables struct {
	mu         sync.Mutex
	offset     time.Duration // of the database clock
	rows       map[int64]*row
	lastID     int64
	limits     map[string]permits.Limit
	edited     map[string]bool // limits
	starts     map[part]int64
	last       map[part]int64 // when the last cost of a part started
	old        int            // portions of records to delete
	types      map[string]limitstore.Type
	controller int32
	term       int64
	admissions int64
	notify     func() // of the controller

	fault      func(operation string) fault // of the next statement
	statements map[string]int
	sent       []string // operations in order
	admitted   []int64  // ids in order
	startedAt  map[string][]time.Time
	broken     []string // what the judge found

	unordered     bool // the order of a class is not judged
	ignoresNumber bool // a negative control
	omitsHeld     bool // a negative control
}

// fault is what happens to a statement.
type fault struct {
	refused bool // it has no effect
	lost    bool // its answer is lost
	locked  bool // it finds some rows locked
	delay   time.Duration
}

var errLost = errors.New("conn closed")

func newTables() *tables {
	return &tables{
		rows:       map[int64]*row{},
		limits:     map[string]permits.Limit{},
		edited:     map[string]bool{},
		starts:     map[part]int64{},
		last:       map[part]int64{},
		statements: map[string]int{},
		startedAt:  map[string][]time.Time{},
		types:      map[string]limitstore.Type{"x": {Slots: 8, Dispatchers: []int32{1, 2, 3}}, "y": {Slots: 4, Dispatchers: []int32{1, 2}}},
	}
}

func (f *tables) now() time.Time { return time.Now().Add(f.offset) }

// update calls change with the tables locked.
func (f *tables) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// insert inserts n rows of a class and returns their ids.
func (f *tables) insert(class permits.Class, n int) (ids []int64) {
	f.update(func() {
		for range n {
			f.lastID++
			f.rows[f.lastID] = &row{Class: class, Job: permits.Job{RunAt: f.now().UnixMicro(), ID: f.lastID}, since: time.Now()}
			ids = append(ids, f.lastID)
		}
	})
	return ids
}

func (f *tables) setLimit(l permits.Limit) {
	f.update(func() { f.limits[l.Key], f.edited[l.Key] = l, true })
}

// operations returns the statements that were sent, in order.
func (f *tables) operations() (sent []string) {
	f.update(func() { sent = slices.Clone(f.sent) })
	return sent
}

// calls returns how many statements were sent.
func (f *tables) calls(operations ...string) (n int) {
	f.update(func() {
		for name, sent := range f.statements {
			if len(operations) == 0 || slices.Contains(operations, name) {
				n += sent
			}
		}
	})
	return n
}

// holders returns the ids of rows that hold permits, in order.
func (f *tables) holders() (ids []int64) {
	f.update(func() {
		for id, r := range f.rows {
			if r.fence > 0 {
				ids = append(ids, id)
			}
		}
	})
	slices.Sort(ids)
	return ids
}

// elect gives the role to a dispatcher.
func (f *tables) elect(dispatcher int32, notify func()) (term int64) {
	f.update(func() {
		f.term++
		f.controller, f.notify, term = dispatcher, notify, f.term
	})
	return term
}

// claim takes an admitted row for a dispatcher and returns its fence, or 0.
func (f *tables) claim(id int64, dispatcher int32) (fence int64) {
	f.update(func() {
		r := f.rows[id]
		if r == nil || r.fence <= 0 || r.running || r.RunAt > f.now().UnixMicro() || r.dispatcher != 0 && r.dispatcher != dispatcher {
			return
		}
		r.running, r.dispatcher, r.startedAt, fence = true, dispatcher, f.now().UnixMicro(), r.fence
		r.attempt++
		for key, cost := range costs(r.Keys) {
			for range max(cost, 1) {
				f.startedAt[key] = append(f.startedAt[key], time.Now())
			}
		}
	})
	return fence
}

// finish ends the run of a row. If again is not negative, the row is pending again and due after it.
func (f *tables) finish(id, fence int64, again time.Duration) (ok bool) {
	f.update(func() {
		r := f.rows[id]
		if ok = r != nil && r.running && r.fence == fence; !ok {
			return
		}
		if again < 0 {
			delete(f.rows, id)
			return
		}
		r.running, r.fence, r.dispatcher, r.startedAt, r.since = false, -fence, 0, 0, time.Now()
		if again > 0 {
			r.RunAt = f.now().Add(again).UnixMicro()
		}
	})
	return ok
}

// costs returns the cost of each key; -1 is all of it.
func costs(keys string) map[string]int64 {
	sum := map[string]int64{}
	for word := range strings.FieldsSeq(keys) {
		key, cost, _ := strings.Cut(word, "*")
		n, err := strconv.ParseInt(cmp.Or(cost, "1"), 10, 64)
		if err != nil || sum[key] < 0 {
			sum[key] = -1
		} else {
			sum[key] += n
		}
	}
	return sum
}

// limitOf is the limit of a key among limits without prefixes.
func limitOf(list map[string]permits.Limit, key string) permits.Limit {
	if l, ok := list[key]; ok {
		return l
	}
	return permits.Limit{Capacity: 1}
}

// judge compares the permits of the keys of admitted rows with the limits of the table, and with those that the controller has read.
func (f *tables) judge(read map[string]permits.Limit, admitted []int64) {
	keys := map[string]bool{}
	for _, id := range admitted {
		for key := range costs(f.rows[id].Keys) {
			keys[key] = true
		}
	}
	type sum struct{ cost, holders, alone int64 }
	at := map[string]map[int32]*sum{}
	for _, r := range f.rows {
		if r.fence <= 0 {
			continue
		}
		for key, cost := range costs(r.Keys) {
			if !keys[key] {
				continue
			}
			place := int32(0)
			if limitOf(read, key).Scope == permits.Dispatcher {
				place = r.dispatcher
			}
			if at[key] == nil {
				at[key] = map[int32]*sum{}
			}
			if at[key][place] == nil {
				at[key][place] = &sum{}
			}
			n := at[key][place]
			n.holders++
			if cost < 0 {
				n.alone++
			} else {
				n.cost += cost
			}
		}
	}
	for key, places := range at {
		now, known := limitOf(f.limits, key), limitOf(read, key)
		for place, n := range places {
			free := now.Capacity == permits.Unlimited || known.Capacity == permits.Unlimited || n.cost <= max(now.Capacity, known.Capacity)
			if !free || n.alone > 0 && n.holders > 1 {
				f.breaks("key %s at %d: %+v; limit %+v", key, place, *n, now)
			}
		}
	}
}

// orderPatience is how long the controller may not know of a waiting row.
const orderPatience = 12 * time.Second

// judgeOrder requires that no row passes one of its class that waits before it.
func (f *tables) judgeOrder(admitted []int64) {
	first := map[permits.Class]permits.Job{}
	for _, r := range f.rows {
		if r.fence > 0 || time.Since(r.since) <= orderPatience || r.RunAt > f.now().Add(-orderPatience).UnixMicro() {
			continue
		}
		if j, ok := first[r.Class]; !ok || byJob(r.Job, j) < 0 {
			first[r.Class] = r.Job
		}
	}
	for _, id := range admitted {
		r := f.rows[id]
		if j, ok := first[r.Class]; ok && byJob(j, r.Job) < 0 {
			f.breaks("row %d passes row %+v of its class %+v, limits %+v", id, *f.rows[j.ID], r.Class, f.limits)
		}
	}
}

func (f *tables) breaks(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

// judgeRates requires that no window of a key contains more starts than its rate.
func (f *tables) judgeRates() {
	for key, l := range f.limits {
		if l.Rate == 0 {
			continue
		}
		list := f.startedAt[key]
		for i := range list {
			n := 0
			for _, at := range list[i:] {
				if at.Sub(list[i]) < time.Duration(l.Per)*time.Microsecond {
					n++
				}
			}
			if int64(n) > l.Rate {
				f.breaks("key %s: %d starts within %d microseconds", key, n, l.Per)
			}
		}
	}
}

// session sends the statements of one controller in one term.
type session struct {
	*tables
	dispatcher int32
	term       int64
	number     int64
	read       map[string]permits.Limit // at the last Limits
}

// send executes a statement with the faults of the table. A statement of a killed dispatcher may be executed later.
func (s *session) send(ctx context.Context, operation string, do func(f fault)) error {
	var f fault
	s.update(func() {
		s.statements[operation]++
		s.sent = append(s.sent, operation)
		if s.fault != nil {
			f = s.fault(operation)
		}
	})
	done := make(chan struct{})
	execute := func() {
		defer close(done)
		if !f.refused {
			s.update(func() { do(f) })
		}
	}
	if f.delay == 0 {
		execute()
	} else {
		time.AfterFunc(f.delay, execute)
		select {
		case <-done:
		case <-ctx.Done():
			runtime.Goexit() // the step is discontinued: it never reads what the late statement writes
		}
	}
	if f.refused || f.lost {
		return errLost
	}
	return ctx.Err()
}

func (s *session) role() bool {
	return s.ignoresNumber || s.controller == s.dispatcher && s.admissions == s.number
}

// Begin implements Table.
func (s *session) Begin(ctx context.Context) (firstFence, last int64, err error) {
	is := false
	err = s.send(ctx, "begin", func(fault) {
		if is = s.controller == s.dispatcher && s.tables.term == s.term; !is {
			return
		}
		s.admissions++
		s.number = s.admissions
		for id, r := range s.rows {
			if r.fence == 0 {
				last = max(last, id)
			}
		}
	})
	if err == nil && !is {
		err = limitstore.ErrNotController
	}
	return s.number << 32, last, err
}

// Limits implements Table.
func (s *session) Limits(ctx context.Context) (list []permits.Limit, err error) {
	err = s.send(ctx, "limits", func(fault) {
		s.read = maps.Clone(s.limits)
		list = slices.SortedFunc(maps.Values(s.limits), func(a, b permits.Limit) int { return strings.Compare(a.Key, b.Key) })
	})
	return list, err
}

// Edits implements Table.
func (s *session) Edits(ctx context.Context, most int) (edited map[string]*permits.Limit, err error) {
	err = s.send(ctx, "edits", func(fault) {
		if !s.role() {
			edited = map[string]*permits.Limit{}
			return
		}
		if len(s.edited) <= most {
			edited = map[string]*permits.Limit{}
			for key := range s.edited {
				l := s.limits[key]
				edited[key] = &l
			}
			s.read = maps.Clone(s.limits)
		}
		clear(s.edited)
	})
	return edited, err
}

// Held implements Table.
func (s *session) Held(ctx context.Context) (list []limitstore.Held, err error) {
	err = s.send(ctx, "held", func(fault) {
		for id, r := range s.rows {
			if r.fence == 0 || s.omitsHeld && id%3 == 0 {
				continue
			}
			list = append(list, limitstore.Held{
				Permit:   permits.Permit{Class: r.Class, Job: r.Job, Fence: max(r.fence, -r.fence), Dispatcher: r.dispatcher, Started: r.running},
				Returned: r.fence < 0, Ago: s.now().UnixMicro() - r.startedAt,
			})
		}
	})
	return list, err
}

// waiting returns waiting rows in an order.
func (s *session) waiting(order func(a, b limitstore.Waiting) int) (list []limitstore.Waiting) {
	for _, r := range s.rows {
		if r.fence == 0 {
			list = append(list, limitstore.Waiting{Class: r.Class, Job: r.Job})
		}
	}
	slices.SortFunc(list, order)
	return list
}

func byID(a, b limitstore.Waiting) int { return cmp.Compare(a.ID, b.ID) }

func byClass(a, b permits.Class) int {
	return cmp.Or(cmp.Compare(a.Keys, b.Keys), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Priority, b.Priority))
}

func byLane(a, b limitstore.Waiting) int {
	return cmp.Or(byClass(a.Class, b.Class), byJob(a.Job, b.Job))
}

func byJob(a, b permits.Job) int {
	return cmp.Or(cmp.Compare(a.RunAt, b.RunAt), cmp.Compare(a.ID, b.ID))
}

// Arrived implements Table.
func (s *session) Arrived(ctx context.Context, after int64, most int) (list []limitstore.Waiting, edited bool, err error) {
	err = s.send(ctx, "arrived", func(fault) {
		edited = len(s.edited) > 0
		list = slices.DeleteFunc(s.waiting(byID), func(w limitstore.Waiting) bool { return w.ID <= after })
		list = list[:min(len(list), most)]
	})
	return list, edited, err
}

// longRest is how many further jobs of a class Heads reads.
const longRest = 2

// Heads implements Table.
func (s *session) Heads(ctx context.Context, after permits.Class, most int) (list []limitstore.Waiting, err error) {
	err = s.send(ctx, "heads", func(fault) {
		for _, w := range s.waiting(byLane) {
			switch n := len(list); {
			case n > 0 && w.Class == after:
				list[n-1].Rest = append(list[n-1].Rest, w.Job)
			case byClass(w.Class, after) > 0 && n < most:
				w.Whole, after = true, w.Class
				list = append(list, w)
			}
		}
		for i := range list {
			if w := &list[i]; len(w.Rest) > longRest {
				w.Whole, w.Rest = false, nil
			}
		}
	})
	return list, err
}

// Refill implements Table.
func (s *session) Refill(ctx context.Context, refills []permits.Refill, most int) (jobs [][]permits.Job, err error) {
	jobs = make([][]permits.Job, len(refills))
	err = s.send(ctx, "refill", func(fault) {
		list := s.waiting(byLane)
		for i, r := range refills {
			for _, w := range list {
				if w.Class == r.Class && byJob(w.Job, r.After) > 0 && len(jobs[i]) < most {
					jobs[i] = append(jobs[i], w.Job)
				}
			}
		}
	})
	return jobs, err
}

// Admit implements Table.
func (s *session) Admit(ctx context.Context, list []permits.Permit) (admitted map[int64]dispatcherd.DurationClass, err error) {
	is := false
	admitted = map[int64]dispatcherd.DurationClass{}
	err = s.send(ctx, "admit", func(f fault) {
		if is = s.role(); !is {
			return
		}
		for _, a := range list {
			for _, st := range a.Counted {
				s.starts[part{st.Key, st.Dispatcher, limitstore.NotStarted}] += st.Cost
			}
		}
		var ids, waited []int64
		for i, a := range list {
			name := a.Class
			name.Retry = 0
			r := s.rows[a.ID]
			if r == nil || r.running || r.fence > 0 || r.Class != name {
				continue
			}
			if f.locked && i%2 == 0 { // the controller forgets it, and finds it again
				r.since = time.Now()
				continue
			}
			if r.fence == 0 { // a row that has returned may have precedence
				waited = append(waited, a.ID)
			}
			r.fence, r.dispatcher = a.Fence, a.Dispatcher
			admitted[a.ID] = dispatcherd.NoDuration
			ids = append(ids, a.ID)
		}
		s.admitted = append(s.admitted, ids...)
		s.judge(s.read, ids)
		if !s.unordered {
			s.judgeOrder(waited)
		}
	})
	if err == nil && !is {
		err = limitstore.ErrNotController
	}
	return admitted, err
}

// Withdraw implements Table.
func (s *session) Withdraw(ctx context.Context, list []permits.Permit) (withdrawn map[int64]bool, err error) {
	is := false
	withdrawn = map[int64]bool{}
	err = s.send(ctx, "withdraw", func(f fault) {
		if is = s.role(); !is {
			return
		}
		for _, p := range list {
			if r := s.rows[p.ID]; r != nil && !r.running && r.fence == p.Fence && !f.locked {
				r.fence, r.dispatcher, r.since = 0, 0, time.Now()
				if p.Retry != 0 {
					r.fence = -max(p.Fence, -p.Fence)
				}
				withdrawn[p.ID] = true
			}
		}
	})
	if err == nil && !is {
		err = limitstore.ErrNotController
	}
	return withdrawn, err
}

// Unstarted implements Table.
func (s *session) Unstarted(ctx context.Context) (keys []string, err error) {
	err = s.send(ctx, "unstarted", func(fault) {
		for p, cost := range s.starts {
			if p.at == limitstore.NotStarted && cost > 0 {
				keys = append(keys, p.key)
			}
		}
	})
	return keys, err
}

// Starts implements Table.
func (s *session) Starts(ctx context.Context, keys []string) (list []permits.Start, err error) {
	err = s.send(ctx, "starts", func(fault) {
		for p, cost := range s.starts {
			if cost > 0 && slices.Contains(keys, p.key) {
				start := permits.Start{Key: p.key, Dispatcher: p.dispatcher, Cost: cost, At: p.at}
				if p.at != limitstore.NotStarted {
					start.Ago = s.now().UnixMicro() - s.last[p]
				}
				list = append(list, start)
			}
		}
	})
	return list, err
}

// Confirm implements Table.
func (s *session) Confirm(ctx context.Context, starts []permits.Start) error {
	return s.send(ctx, "confirm", func(fault) {
		if !s.role() {
			return
		}
		for _, st := range starts {
			if st.At > 0 {
				width := max(st.Per/64, 1)
				p := part{st.Key, st.Dispatcher, (st.At/width + 1) * width}
				s.starts[p] += st.Cost
				s.last[p] = max(s.last[p], st.At)
			}
			if p := (part{st.Key, st.Dispatcher, limitstore.NotStarted}); s.hasStart(p) && !st.Unrecorded {
				s.starts[p] = max(s.starts[p]-st.Cost, 0)
			}
		}
	})
}

// Expire implements Table.
func (s *session) Expire(ctx context.Context) (more bool, err error) {
	err = s.send(ctx, "expire", func(fault) {
		s.old = max(s.old-1, 0)
		more = s.old > 0
	})
	return more, err
}

// Types implements Table.
func (s *session) Types(ctx context.Context) (types map[string]limitstore.Type, err error) {
	err = s.send(ctx, "types", func(fault) { types = maps.Clone(s.types) })
	return types, err
}

// Notify implements Table.
func (s *session) Notify(ctx context.Context) error {
	var notify func()
	err := s.send(ctx, "notify", func(fault) { notify = s.notify })
	if notify != nil {
		notify()
	}
	return err
}

// hasStart reports whether there is a record.
func (f *tables) hasStart(p part) bool {
	_, ok := f.starts[p]
	return ok
}
