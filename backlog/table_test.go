package backlog

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// row is one row of the naive table. The naive table contains every row.
type row struct {
	key      contract.Key
	typ      string
	priority dispatcherd.Priority
	class    dispatcherd.DurationClass
	pending  bool
	theirs   bool // another dispatcher has taken the row, or released it while a read was in flight
}

// job is a job in hand.
type job struct {
	row   *row
	key   contract.Key // the key at which the job was taken
	lane  Lane
	batch uint32
	again bool
	ended bool // its row is pending again or gone, but the dispatcher does not know this yet
	how   int  // how the attempt ended, if it has ended
	delay time.Duration
}

// hands is a naive implementation of Jobs.
type hands map[dispatcherd.JobID]*job

func (h hands) Len() int { return len(h) }

func (h hands) OfType(t slotindex.TypeID) (n int) {
	for _, j := range h {
		if j.lane.Type == t {
			n++
		}
	}
	return n
}

func (hands) LanesChanged(slotindex.TypeID) {}

func (h hands) InHand(k contract.Key) bool {
	j := h[k.ID]
	if j == nil {
		return false
	}
	j.again = j.again || j.key != k
	return true
}

func (h hands) any(rng *rand.Rand) *job {
	ids := make([]dispatcherd.JobID, 0, len(h))
	for id := range h {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	return h[ids[rng.IntN(len(ids))]]
}

// read is a fetch or backfill scan in flight. It reads the table at some time
// before it is answered.
type read struct {
	request *contract.FetchRequest
	result  contract.FetchResult
	done    bool
}

// world is a Backlog with a table, slots, and a dispatcher that takes random
// heads.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	index   *slotindex.Index
	b       *Backlog
	types   []slotindex.TypeID
	slots   []slotindex.Ref
	taken   []slotindex.Ref
	now     timing.Instant
	offset  int64 // database clock minus now, microseconds
	rows    map[dispatcherd.JobID]*row
	lastID  dispatcherd.JobID
	hands   hands
	reads   []*read
	latency int  // average number of steps until a read is answered
	silent  bool // changes of the table cause no notification
	named   bool // some rows have an expected duration
	lost    int  // how often a popped row was not pending
	fed     int  // rows that were popped
}

var typeNames = []string{"pdf", "excel", "scan"}

func testConfig() Config {
	return Config{
		Poll: time.Second, PollUnsubscribed: 200 * time.Millisecond, Patience: 100 * time.Millisecond, Penalty: 2 * time.Second,
		RetryStatement: timing.Backoff{Base: 50 * time.Millisecond, Max: 5 * time.Second},
		LaneLength:     4096, LanesPerFetch: 1024, RowsPerFetch: 65_536, KnownRows: 256, LostPerList: 5, Departures: 20_000,
	}
}

// due returns the reads that are due.
func (w *world) due() (list []*contract.FetchRequest) {
	w.b.NextRead(func(r *contract.FetchRequest) { list = append(list, r) })
	return list
}

// newWorld returns a world with a random configuration and six slots.
func newWorld(t *testing.T, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 7))
	cfg := testConfig()
	cfg.Poll = time.Duration(20+rng.IntN(200)) * time.Millisecond
	cfg.LaneLength = 1 + rng.IntN(6)
	cfg.LanesPerFetch, cfg.KnownRows = 11+rng.IntN(40), 1+rng.IntN(20)
	cfg.RowsPerFetch = 20 + rng.IntN(200)
	cfg.LostPerList = 1 + rng.IntN(3)
	w := &world{
		t: t, rng: rng, index: slotindex.New(), now: 1000, offset: 1_700_000_000_000_000,
		rows: map[dispatcherd.JobID]*row{}, hands: hands{}, latency: 3, named: seed%4 > 1,
	}
	w.b = New(cfg, w.index, w.hands, rand.New(rand.NewPCG(seed, 8)))
	w.b.Advance(w.now)
	for i := range 6 {
		ref := w.index.AddTaken(dispatcherd.SlotID(i+1), sortedTypes(i))
		w.index.Release(ref)
		w.slots = append(w.slots, ref)
	}
	for _, name := range typeNames {
		typ := w.index.Hold(name)
		w.types = append(w.types, typ)
		w.b.TypeAppeared(typ, contract.Share{})
		w.b.CapacityAppeared(typ)
	}
	return w
}

func sortedTypes(i int) []string {
	set := []string{typeNames[i%3]}
	if i > 2 {
		set = append(set, typeNames[(i+1)%3])
	}
	slices.Sort(set)
	return set
}

func (w *world) dbNow() int64 { return int64(w.now)*1000 + w.offset }

// fetch computes the answer to a request from the table.
func (w *world) fetch(req *contract.FetchRequest) contract.FetchResult {
	res := contract.FetchResult{Verdict: contract.OK, DBNow: w.dbNow()}
	for i, q := range req.Lanes {
		var keys []contract.Key
		for _, r := range w.rows {
			if r.pending && r.typ == q.Type && r.priority == q.Priority && r.class == q.Class && q.Share.Owns(r.key.ID) != q.NonLocal &&
				q.After.Less(r.key) && (q.Before == (contract.Key{}) || r.key.Less(q.Before)) {
				keys = append(keys, r.key)
			}
		}
		slices.SortFunc(keys, contract.Key.Compare)
		for _, k := range keys[:min(len(keys), q.Limit)] {
			res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: k})
		}
	}
	for _, r := range w.sortedRows() {
		n := contract.NamedLane{Type: slices.Index(req.Classes, r.typ), Priority: r.priority, Class: r.class}
		if r.pending && r.class != dispatcherd.NoDuration && n.Type >= 0 && !slices.Contains(res.Named, n) {
			res.Named = append(res.Named, n)
		}
	}
	return res
}

// send asks the backlog for reads, checks them, and returns their number.
func (w *world) send() int {
	requests := w.due()
	require.LessOrEqual(w.t, len(requests), 2)
	for _, req := range requests {
		require.NotZero(w.t, len(req.Lanes)+len(req.Classes))
		seen := map[contract.LaneQuery]bool{}
		for _, q := range req.Lanes {
			require.Positive(w.t, q.Limit)
			require.Equal(w.t, req.Backfill, q.Before != contract.Key{}, "only a backfill scan ends before a key")
			require.False(w.t, q.NonLocal && q.Share.All())
			require.Positive(w.t, w.index.Capacity(w.typeOf(q.Type)), "a type without slots is not read")
			lane := contract.LaneQuery{Type: q.Type, Priority: q.Priority, Class: q.Class, NonLocal: q.NonLocal}
			require.False(w.t, seen[lane], "a lane is read once in a request")
			seen[lane] = true
		}
		for _, r := range w.reads {
			require.NotEqual(w.t, r.request.Backfill, req.Backfill, "one read of a kind is in flight")
		}
		w.reads = append(w.reads, &read{request: req})
	}
	require.Empty(w.t, w.due(), "nothing more is due at the same instant")
	if subscribe, changed := w.b.NextGate(); changed {
		w.b.GateAnswered(subscribe, contract.OK)
	}
	require.NoError(w.t, w.b.Check())
	return len(requests)
}

func (w *world) typeOf(name string) slotindex.TypeID {
	typ, ok := w.index.Lookup(name)
	require.True(w.t, ok)
	return typ
}

// answer completes one read. It reads the table now unless the read has done so
// before.
func (w *world) answer(i int, v contract.Verdict) {
	r := w.reads[i]
	w.reads = slices.Delete(w.reads, i, i+1)
	if !r.done {
		r.result = w.fetch(r.request)
	}
	if v != contract.OK {
		r.result = contract.FetchResult{Verdict: v}
	}
	w.b.Fetched(r.request, r.result)
	require.NoError(w.t, w.b.Check())
}

// insert adds rows that are up to 200 ms old or become due within 200 ms.
func (w *world) insert() {
	typ := typeNames[w.rng.IntN(3)]
	class := w.class()
	n := 1 + w.rng.IntN(4)
	for range n {
		w.lastID++
		w.rows[w.lastID] = &row{
			key: contract.Key{RunAt: w.dbNow() + int64(w.rng.IntN(400)-200)*1000, ID: w.lastID},
			typ: typ, priority: dispatcherd.Priority(w.rng.IntN(3)), class: class, pending: true,
		}
	}
	r := w.rows[w.lastID]
	switch k := w.rng.IntN(4); {
	case w.silent || k == 0:
	case n == 1 && k < 3:
		w.b.RowNotified(&contract.RowNotification{Type: r.typ, Priority: r.priority, Class: r.class, Key: r.key}, r.key.RunAt <= w.dbNow())
	default:
		w.b.Notified()
	}
}

// class returns a random class. Half of the worlds have no jobs with an expected duration.
func (w *world) class() dispatcherd.DurationClass {
	if !w.named || w.rng.IntN(2) == 0 {
		return dispatcherd.NoDuration
	}
	return dispatcherd.DurationClass(1 + 3*w.rng.IntN(3))
}

// lanes returns the lanes that offer a candidate.
func (w *world) lanes() (all []Lane) {
	for _, t := range w.types {
		for r := range w.b.Waiting(t) {
			if _, bound, ok := w.b.Head(r); ok && !bound {
				all = append(all, r)
			}
		}
	}
	return all
}

// take pops the head of a random lane and claims it.
func (w *world) take() {
	all := w.lanes()
	if len(all) == 0 {
		return
	}
	lane := all[w.rng.IntN(len(all))]
	head, _, _ := w.b.Head(lane)
	key, batch := w.b.Pop(lane)
	require.Equal(w.t, head, key)
	require.Nil(w.t, w.hands[key.ID], "a row in hand is no candidate")
	r := w.rows[key.ID]
	w.fed++
	j := &job{row: r, key: key, lane: lane, batch: batch}
	w.hands[key.ID] = j
	w.b.JobTaken()
	if r == nil || !r.pending || r.key != key {
		w.lost++
		w.b.Lost(lane, batch)
		w.forget(j)
		return
	}
	r.pending = false
}

func (w *world) forget(j *job) {
	delete(w.hands, j.key.ID)
	if j.again {
		w.b.Rescan(w.b.LaneOf(j.lane, j.key.ID))
	}
}

// The values are the ways in which an attempt ends.
const (
	done = iota
	retried
	released
	returned
	ways
)

// end changes the row of a job in hand.
func (w *world) end(j *job, how int) {
	j.ended, j.how = true, how
	switch how {
	case done:
		delete(w.rows, j.key.ID)
	case retried:
		j.delay = time.Duration(w.rng.IntN(100)) * time.Millisecond
		j.row.key.RunAt = w.dbNow() + j.delay.Microseconds()
		j.row.pending = true
	default:
		j.row.pending = true
	}
}

// record tells the backlog about the end of a job.
func (w *world) record(j *job) {
	switch j.how {
	case done:
		w.b.Departed(j.lane, j.key)
	case retried:
		w.b.Departed(j.lane, j.key)
		w.b.Delayed(j.delay)
	case released:
		w.b.PutBack(j.lane, j.key)
	case returned:
		w.b.GivenBack()
	}
	w.forget(j)
}

// finish ends a random job, and records the end either now or later.
func (w *world) finish(at int) {
	j := w.hands.any(w.rng)
	switch {
	case j == nil:
	case j.ended:
		w.record(j)
	default:
		how := w.rng.IntN(at)
		if how >= ways {
			how = done
		}
		w.end(j, how)
		if w.rng.IntN(2) == 0 {
			w.record(j)
		}
	}
}

func (w *world) changeShare() {
	others := contract.Others{SmallerIDs: w.rng.IntN(3), LargerIDs: w.rng.IntN(3), Least: 1}
	w.b.SetShare(w.types[w.rng.IntN(len(w.types))], contract.ShareOf(2, others))
}

// changeSlots takes or frees a slot.
func (w *world) changeSlots() {
	if n := len(w.taken); n > 0 && w.rng.IntN(2) == 0 {
		w.index.Release(w.taken[n-1])
		w.taken = w.taken[:n-1]
		w.b.SlotFreed()
		return
	}
	if ref, ok := w.takeSlot(w.types[w.rng.IntN(len(w.types))]); ok {
		w.taken = append(w.taken, ref)
	}
}

// sortedRows returns all rows in a fixed order.
func (w *world) sortedRows() []*row {
	var all []*row
	for _, r := range w.rows {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *row) int { return cmp.Compare(a.key.ID, b.key.ID) })
	return all
}

// takeSlot takes the most specialised free slot of a type.
func (w *world) takeSlot(t slotindex.TypeID) (slotindex.Ref, bool) {
	ref, ok := w.index.Peek(t)
	if ok {
		w.index.Take(ref)
	}
	return ref, ok
}
