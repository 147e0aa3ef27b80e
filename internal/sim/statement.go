package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// op is what a statement does; the names are those of package claim.
type op uint8

const (
	opFetch op = iota
	opClaim
	opResolve
	opFinish
	opGate
	opHeartbeat
	opJoin
	opLeave
	opAdopt
	opHandOver
	opBackfill
)

// linkOf says which connection carries an operation: statements of one
// connection queue behind each other.
var pgConnOf = [...]int{opFetch: 0, opClaim: 1, opResolve: 1, opFinish: 2, opGate: 3, opHeartbeat: 3, opJoin: 3, opLeave: 3, opAdopt: 4, opHandOver: 3, opBackfill: 5}

const pgConns = 6

// phase is how far a statement has come on the server.
type phase uint8

const (
	inTransit phase = iota // has not arrived
	started                // wants the lock of its dispatcher's row
	locks                  // locks rows, one after the other
	commits
	releases // second half of a beat or a leave: rows of lost dispatchers
	freed
)

// statement is one statement from the moment it is sent until both ends have
// done with it. The client may give it up long before the server gets it.
type statement struct {
	op       op
	phase    phase
	host     int16
	gen      uint32 // grows when the record is used again
	next     int32  // free list
	index    int32  // position in statements.active, -1 = not on the server
	run      int32
	epoch    int32
	token    uint64
	waitsFor int32 // statement it waits for plus one
	slow     moment
	arrived  moment
	txNow    int64 // the database clock when its transaction began

	fetch      *contract.FetchRequest
	claim      *contract.ClaimRequest
	finish     *contract.FinishRequest
	ids        []dispatcherd.JobID    // of a claim
	to         []contract.Fingerprint // for whom it takes them
	adopt      *contract.AdoptRequest
	items      []contract.Finish // of a finish
	removable  []uint64          // tokens whose notes a claim removes
	again      bool
	subscribed bool
	capacity   [maxTypes]int32 // capacity that a beat publishes

	picked      []int32 // positions in ids or items that passed the first look
	cursor      int     // of picked
	locked      []dispatcherd.JobID
	uncontended bool // a claim that believes to have no rival: it waits for locks, for a while
	contended   bool // it met one and began again
	retries     int
	allowed     bool // a claim's dispatcher had its lease
	shares      bool // holds the share lock of its dispatcher's row
	exclusive   bool

	answered   bool // an answer is on its way, or there was one
	loseAnswer bool // the answer will get lost
	clientDone bool // the client has done with it
	serverDone bool // the server has
	verdict    contract.Verdict
	won        []contract.Won
	stale      []dispatcherd.JobID
	found      []contract.Candidate
	taken      []contract.Adopted
	busy       []dispatcherd.JobID // rows that an adoption found locked
	dbNow      int64
	result     heartbeatResult
}

// beatAnswer is claim.HeartbeatResult, and the new id of a join.
type heartbeatResult struct {
	leaseLost     bool
	lost          bool
	released      int
	cancels       []dispatcherd.JobID
	otherCapacity map[string]int
	shares        map[string]contract.Share
	run           int32
	epoch         int32
	outdated      bool // the claim was of an earlier epoch
}

// statements keeps the records.
type statements struct {
	all    []*statement
	free   int32
	active []int32 // those on the server
}

// statement returns a fresh record.
func (w *world) statement(o op, h *host) (int32, *statement) {
	st := &w.statements
	i := st.free
	if i >= 0 {
		st.free = st.all[i].next
	} else {
		i = int32(len(st.all))
		st.all = append(st.all, &statement{})
	}
	s := st.all[i]
	*s = statement{
		op: o, host: h.id, gen: s.gen + 1, index: -1, slow: 1, ids: s.ids[:0], to: s.to[:0], items: s.items[:0], removable: s.removable[:0],
		picked: s.picked[:0], locked: s.locked[:0], won: s.won[:0], stale: s.stale[:0], found: s.found[:0], taken: s.taken[:0], busy: s.busy[:0],
		result: heartbeatResult{cancels: s.result.cancels[:0]},
	}
	return i, s
}

// drop frees a record that neither end needs any more.
func (w *world) drop(i int32) {
	s := w.statements.all[i]
	if !s.clientDone || !s.serverDone || s.phase == freed {
		return
	}
	s.phase = freed
	s.next, w.statements.free = w.statements.free, i
}

// send puts a statement on the wire. Chance decides here what will go wrong.
func (w *world) send(i int32) {
	s := w.statements.all[i]
	h := w.hosts[s.host]
	s.run, s.epoch = h.run, h.epoch
	t := &w.table
	arrival := w.now + w.latency(s)
	switch {
	case t.down:
		s.serverDone = true
		w.reply(i, contract.Refused, w.now+millisecond)
		return
	case t.cut:
		w.loseOnNetwork(i)
		return
	case w.has(Unknown) && w.random.chance(150):
		w.stats.Unknowns++
		switch w.random.below(3) {
		case 0: // it never arrives
			s.serverDone = true
			w.reply(i, contract.Unknown, w.now+w.random.span(millisecond, w.scale.timeout))
			return
		case 1: // its answer never does
			s.loseAnswer = true
		default: // it arrives when it was given up long ago
			w.stats.LateStatement++
			s.loseAnswer = true
			arrival = w.now + w.random.span(millisecond, 3*second)
			w.reply(i, contract.Unknown, w.now+w.random.span(millisecond/2, 20*millisecond))
		}
	case w.has(Slow) && w.random.chance(100):
		w.stats.Slow++
		s.slow = moment(w.random.between(20, 2000))
		arrival = w.now + w.latency(s)
	}
	w.plan(task{at: arrival, kind: statementAt, arg: i, incarnation: s.gen})
}

// strand loses a statement on a cut network. It may arrive when the network is
// whole again, when nobody waits for it any more.
func (w *world) loseOnNetwork(i int32) {
	s := w.statements.all[i]
	s.loseAnswer = true
	w.reply(i, contract.Unknown, w.now+w.scale.timeout)
	if w.random.below(2) == 0 {
		s.serverDone = true
		return
	}
	w.plan(task{at: w.now + w.random.span(second/2, 5*second), kind: statementAt, arg: i, incarnation: s.gen})
}

func (w *world) latency(s *statement) moment {
	return w.random.span(30, 600) * s.slow
}

// reply tells the client how it ended, once.
func (w *world) reply(i int32, v contract.Verdict, at moment) {
	s := w.statements.all[i]
	if s.answered {
		return
	}
	s.answered = true
	if v != contract.OK && (s.op == opFetch || s.op == opBackfill || s.op == opGate) {
		v = contract.Refused // what may have happened makes no difference to them
	}
	s.verdict = v
	h := w.hosts[s.host]
	w.plan(task{at: at, kind: hostAnswer, who: s.host, incarnation: h.incarnation, arg: i})
}

// proceed takes a statement one step further on the server.
func (w *world) proceed(i int32, gen uint32) {
	s := w.statements.all[i]
	if s.gen != gen || s.serverDone {
		return
	}
	if s.phase == inTransit {
		if !w.arrive(i) {
			return
		}
	}
	s.waitsFor = 0
	switch s.op {
	case opFetch, opBackfill:
		w.doFetch(i)
	case opClaim:
		w.doClaim(i)
	case opResolve:
		w.doResolve(i)
	case opFinish:
		w.doFinish(i)
	case opGate:
		if m := w.table.member(s.run); !m.lost {
			m.subscribed = s.subscribed
		}
		w.finished(i, contract.OK)
	case opHeartbeat:
		w.doHeartbeat(i)
	case opJoin:
		s.result.run = w.table.join(s.host, w.dbNow(), w.scale.lease)
		w.finished(i, contract.OK)
	case opLeave:
		w.doLeave(i)
	case opAdopt:
		w.doAdopt(i)
	case opHandOver:
		w.doHandOver(i)
	}
}

// arrive begins the transaction.
func (w *world) arrive(i int32) bool {
	s := w.statements.all[i]
	t := &w.table
	if t.down || t.cut && !s.answered {
		s.serverDone = true // whoever sent it sees its connection break
		w.reply(i, contract.Unknown, w.now+millisecond)
		w.drop(i)
		return false
	}
	s.arrived, s.txNow, s.phase = w.now, w.dbNow(), started
	s.index = int32(len(w.statements.active))
	w.statements.active = append(w.statements.active, i)
	if s.slow > 1 {
		w.plan(task{at: w.now + w.scale.limit, kind: statementLate, arg: i, incarnation: s.gen})
	}
	return true
}

// later goes on after a while.
func (w *world) later(i int32, p phase) {
	s := w.statements.all[i]
	s.phase = p
	w.plan(task{at: w.now + w.latency(s), kind: statementAt, arg: i, incarnation: s.gen})
}

// await goes on when some lock has been released. holder is the statement that
// has the lock, plus one, or 0 if several have it.
func (w *world) waitForLock(i, holder int32) {
	s := w.statements.all[i]
	w.stats.LockWaits++
	s.waitsFor = holder
	for at, n := holder, 0; at != 0; at, n = w.statements.all[at-1].waitsFor, n+1 {
		if at == i+1 || n > len(w.statements.all) {
			w.violate("deadlock: statements of dispatchers %d and %d wait for each other", s.host, w.statements.all[holder-1].host)
			return
		}
	}
	w.table.waiters = append(w.table.waiters, i)
	w.plan(task{at: w.now + w.scale.limit, kind: statementLate, arg: i, incarnation: s.gen})
}

// mayShare reports whether a statement may have the share lock on its dispatcher's
// row, which it waits for otherwise.
func (w *world) mayShare(i int32, m *member) bool {
	if m.exclusive != 0 {
		w.waitForLock(i, m.exclusive)
		return false
	}
	return true
}

// lockAlone takes the exclusive lock on the row of a statement's dispatcher, or
// waits for it, and goes on to the commit.
func (w *world) lockAlone(i int32, m *member) {
	if m.exclusive != 0 || m.shares > 0 {
		w.waitForLock(i, m.exclusive)
		return
	}
	m.exclusive, w.statements.all[i].exclusive = i+1, true
	w.later(i, commits)
}

// wake lets those go on that waited for a lock.
func (w *world) wakeWaiters() {
	for _, i := range w.table.waiters {
		if s := w.statements.all[i]; !s.serverDone {
			w.plan(task{at: w.now, kind: statementAt, arg: i, incarnation: s.gen})
		}
	}
	w.table.waiters = w.table.waiters[:0]
}

// tooLate rolls a statement back that has reached the server's limit.
func (w *world) statementTimeout(i int32, gen uint32) {
	s := w.statements.all[i]
	if s.gen != gen || s.serverDone || w.now-s.arrived < w.scale.limit {
		return
	}
	w.finished(i, contract.Refused)
}

// finished ends the server's part: locks are released, and the answer sets
// out, or gets lost.
func (w *world) finished(i int32, v contract.Verdict) {
	s := w.statements.all[i]
	w.unlock(i)
	s.serverDone = true
	st := &w.statements
	last := st.active[len(st.active)-1]
	st.active[s.index] = last
	st.all[last].index = s.index
	st.active = st.active[:len(st.active)-1]
	s.index = -1
	if w.table.cut {
		s.loseAnswer = true
	}
	if s.loseAnswer {
		w.reply(i, contract.Unknown, max(w.now+millisecond, s.arrived+w.random.span(0, w.scale.timeout)))
	} else {
		w.reply(i, v, w.now+w.latency(s)+w.scanTime(s))
	}
	w.drop(i)
}

// reading is how long a full look reads over dead index entries.
func (w *world) scanTime(s *statement) moment {
	switch {
	case !w.opt.SlowScans || s.fetch == nil:
	case s.fetch.Backfill:
		w.stats.BackfillScans++
		return w.random.span(second/4, 2*second)
	case s.fetch.Lanes[0].After == (contract.Key{}) && w.random.below(4) == 0:
		return w.random.span(second/4, second/2)
	}
	return 0
}

func (w *world) unlock(i int32) {
	s := w.statements.all[i]
	freed := len(s.locked) > 0 || s.shares || s.exclusive
	for _, id := range s.locked {
		w.table.row(id).lock = 0
	}
	s.locked = s.locked[:0]
	if s.shares {
		w.table.member(s.run).shares--
		s.shares = false
	}
	if s.exclusive {
		w.table.member(s.run).exclusive = 0
		s.exclusive = false
	}
	if freed && len(w.table.waiters) > 0 {
		w.wakeWaiters()
	}
}

// lock takes a row's lock. It reports false if somebody else has it.
func (w *world) lock(i int32, id dispatcherd.JobID, r *row) bool {
	if r.lock != 0 {
		return false
	}
	r.lock = i + 1
	s := w.statements.all[i]
	s.locked = append(s.locked, id)
	return true
}

// breakConnections ends everything that is on the server, as a crash of
// Postgres does: what has not committed never happened.
func (w *world) breakConnections() {
	for len(w.statements.active) > 0 {
		i := w.statements.active[0]
		s := w.statements.all[i]
		s.loseAnswer = true
		w.finished(i, contract.Unknown)
	}
	w.table.waiters = w.table.waiters[:0]
}

// abandon tells the statements of a dead process that nobody waits for them.
// Those on the server go on there: a backend notices a dead client only when
// it answers.
func (w *world) abandon(list []int32) {
	for _, i := range list {
		s := w.statements.all[i]
		s.clientDone, s.answered = true, true
		if s.phase == inTransit && !s.serverDone && w.random.below(2) == 0 {
			s.serverDone = true // it was still in the dead process's buffer
		}
		w.drop(i)
	}
}

// holds reports whether an id is among sorted ids.
func holds(ids []dispatcherd.JobID, id dispatcherd.JobID) bool {
	_, found := slices.BinarySearch(ids, id)
	return found
}
