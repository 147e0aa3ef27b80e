package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// op is the operation of a statement, named as in package claim.
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

// pgConnOf maps an operation to its connection. The statements of a connection
// run one after another.
var pgConnOf = [...]int{opFetch: 0, opClaim: 1, opResolve: 1, opFinish: 2, opGate: 3, opHeartbeat: 3, opJoin: 3, opLeave: 3, opAdopt: 4, opHandOver: 3, opBackfill: 5}

const pgConns = 6

// phase is the progress of a statement on the server.
type phase uint8

const (
	inTransit phase = iota // has not arrived
	started                // waits for the lock of its dispatcher's row
	locks                  // locks rows, one after another
	commits
	releases // second half of a heartbeat or leave: rows of lost dispatchers
	freed
)

// A statement lives from sending until client and server have both ended it.
// The client may give it up long before the server receives it.
type statement struct {
	op       op
	phase    phase
	host     int16
	gen      uint32 // grows when the record is reused
	next     int32  // free list
	index    int32  // position in statements.active, -1 = not on the server
	run      int32
	epoch    int32
	token    uint64
	waitsFor int32 // statement that it waits for plus one
	slow     moment
	arrived  moment
	txNow    int64 // database clock at the start of its transaction

	fetch      *contract.FetchRequest
	claim      *contract.ClaimRequest
	finish     *contract.FinishRequest
	ids        []dispatcherd.JobID    // of a claim
	to         []contract.Fingerprint // sessions for which a claim takes the rows
	adopt      *contract.AdoptRequest
	items      []contract.Finish // of a finish
	removable  []uint64          // tokens of claim rows that a claim removes
	again      bool
	subscribed bool
	capacity   [maxTypes]int32 // capacity that a heartbeat publishes

	picked      []int32 // positions in ids or items that passed the first check
	cursor      int     // position in picked
	locked      []dispatcherd.JobID
	uncontended bool // of a claim: it expects no contention, so it waits for locks for a short time
	contended   bool // of a claim: it met contention and started again
	retries     int
	allowed     bool // of a claim: its dispatcher had its lease
	shares      bool // it holds the share lock of its dispatcher's row
	exclusive   bool

	answered   bool // an answer is in flight or has arrived
	loseAnswer bool // the answer is lost
	clientDone bool // the client has ended it
	serverDone bool // the server has ended it
	verdict    contract.Verdict
	won        []contract.Won
	stale      []dispatcherd.JobID
	found      []contract.Candidate
	taken      []contract.Adopted
	busy       []dispatcherd.JobID // rows that an adoption found locked
	dbNow      int64
	result     heartbeatResult
}

// heartbeatResult is the result of a heartbeat, and the id of a join.
type heartbeatResult struct {
	contract.HeartbeatResult

	run      int32
	epoch    int32
	outdated bool // the claim had an earlier epoch
}

// statements holds the records of statements.
type statements struct {
	all    []*statement
	free   int32
	active []int32 // on the server
}

// statement returns an initialized record.
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
		result: heartbeatResult{HeartbeatResult: contract.HeartbeatResult{Cancels: s.result.Cancels[:0]}},
	}
	return i, s
}

// drop frees a record that neither client nor server uses.
func (w *world) drop(i int32) {
	s := w.statements.all[i]
	if !s.clientDone || !s.serverDone || s.phase == freed {
		return
	}
	s.phase = freed
	s.next, w.statements.free = w.statements.free, i
}

// send sends a statement. The random source decides here whether it fails.
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
		case 1: // its answer is lost
			s.loseAnswer = true
		default: // it arrives after the client gave it up
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

// loseOnNetwork handles a statement that is sent while the network is cut. The
// statement may arrive after the client gave it up.
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

// reply plans the answer to the client, once per statement.
func (w *world) reply(i int32, v contract.Verdict, at moment) {
	s := w.statements.all[i]
	if s.answered {
		return
	}
	s.answered = true
	if v != contract.OK && (s.op == opFetch || s.op == opBackfill || s.op == opGate) {
		v = contract.Refused // an unknown outcome makes no difference for these
	}
	s.verdict = v
	h := w.hosts[s.host]
	w.plan(task{at: at, kind: hostAnswer, who: s.host, incarnation: h.incarnation, arg: i})
}

// proceed executes the next phase of a statement on the server.
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
		s.serverDone = true // the client sees its connection break
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

// later plans the next phase of a statement.
func (w *world) later(i int32, p phase) {
	s := w.statements.all[i]
	s.phase = p
	w.plan(task{at: w.now + w.latency(s), kind: statementAt, arg: i, incarnation: s.gen})
}

// waitForLock continues the statement when a lock is released. holder is the
// statement that has the lock plus one, or 0 if several have it.
func (w *world) waitForLock(i, holder int32) {
	s := w.statements.all[i]
	w.stats.LockWaits++
	s.waitsFor = holder
	for at, n := holder, 0; at != 0; at, n = w.statements.all[at-1].waitsFor, n+1 {
		if at == i+1 || n > len(w.statements.all) {
			w.violate("deadlock: statements of dispatchers %d and %d wait for one another", s.host, w.statements.all[holder-1].host)
			return
		}
	}
	w.table.waiters = append(w.table.waiters, i)
	w.plan(task{at: w.now + w.scale.limit, kind: statementLate, arg: i, incarnation: s.gen})
}

// mayShare reports whether a statement can share the lock of its dispatcher's
// row. Otherwise the statement waits.
func (w *world) mayShare(i int32, m *member) bool {
	if m.exclusive != 0 {
		w.waitForLock(i, m.exclusive)
		return false
	}
	return true
}

// lockAlone takes the exclusive lock of the dispatcher's row, or waits for it,
// and continues with the commit.
func (w *world) lockAlone(i int32, m *member) {
	if m.exclusive != 0 || m.shares > 0 {
		w.waitForLock(i, m.exclusive)
		return
	}
	m.exclusive, w.statements.all[i].exclusive = i+1, true
	w.later(i, commits)
}

// wakeWaiters continues the statements that wait for a lock.
func (w *world) wakeWaiters() {
	for _, i := range w.table.waiters {
		if s := w.statements.all[i]; !s.serverDone {
			w.plan(task{at: w.now, kind: statementAt, arg: i, incarnation: s.gen})
		}
	}
	w.table.waiters = w.table.waiters[:0]
}

// statementTimeout rolls back a statement that has reached the time limit of
// the server.
func (w *world) statementTimeout(i int32, gen uint32) {
	s := w.statements.all[i]
	if s.gen != gen || s.serverDone || w.now-s.arrived < w.scale.limit {
		return
	}
	w.finished(i, contract.Refused)
}

// finished ends the server's part: it releases the locks and sends or loses the
// answer.
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

// scanTime returns how long a scan reads over dead index entries.
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

// lock locks a row. It reports false if another statement holds the lock.
func (w *world) lock(i int32, id dispatcherd.JobID, r *row) bool {
	if r.lock != 0 {
		return false
	}
	r.lock = i + 1
	s := w.statements.all[i]
	s.locked = append(s.locked, id)
	return true
}

// breakConnections aborts all statements on the server, as a crash of Postgres
// does.
func (w *world) breakConnections() {
	for len(w.statements.active) > 0 {
		i := w.statements.active[0]
		s := w.statements.all[i]
		s.loseAnswer = true
		w.finished(i, contract.Unknown)
	}
	w.table.waiters = w.table.waiters[:0]
}

// abandon ends the client's part of the statements of a dead process.
// Statements on the server continue, because a backend notices a dead client
// only when it answers.
func (w *world) abandon(list []int32) {
	for _, i := range list {
		s := w.statements.all[i]
		s.clientDone, s.answered = true, true
		if s.phase == inTransit && !s.serverDone && w.random.below(2) == 0 {
			s.serverDone = true // it was in the buffer of the dead process
		}
		w.drop(i)
	}
}

// holds reports whether sorted ids contain an id.
func holds(ids []dispatcherd.JobID, id dispatcherd.JobID) bool {
	_, found := slices.BinarySearch(ids, id)
	return found
}
