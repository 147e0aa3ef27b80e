package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
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
	opLoad
	opKeys
	opSettle
	opSpawn
)

// pgConnOf maps an operation to its kind of connection. The statements of a connection
// run one after another.
var pgConnOf = [...]int{
	opFetch:     0,
	opClaim:     1,
	opResolve:   1,
	opFinish:    2,
	opGate:      3,
	opHeartbeat: 3,
	opJoin:      3,
	opLeave:     3,
	opAdopt:     4,
	opHandOver:  3,
	opBackfill:  5,
	opLoad:      6,
	opKeys:      7,
	opSettle:    8,
	opSpawn:     9,
}

const pgConns = 10

// postgres is the state of the server, beside the table.
type postgres struct {
	offset   int64   // database clock minus true time
	down     bool    // the server is down
	cut      bool    // the server cannot be reached
	restored moment  // when it last became available
	waiters  []int32 // statements that wait for a lock
}

// epoch is the database clock at the start.
const epoch = 1_700_000_000_000_000

// dbNow is the database clock in microseconds.
func (w *world) dbNow() int64 { return int64(w.now) + w.postgres.offset }

// A statement lives from sending until client and server have both ended it. The client
// may give it up long before the server receives it. Its execution on the server is a
// claimfake.Statement, whose phases take time.
type statement struct {
	op      op
	host    int16
	gen     uint32 // grows when the record is reused
	next    int32  // free list
	index   int32  // position in statements.active, -1 = not on the server
	slow    moment
	arrived moment
	tx      *claimfake.Statement // since it was sent
	asked   int                  // rows that the request names

	fetch      *contract.FetchRequest
	claim      *contract.ClaimRequest
	load       *contract.LoadRequest
	finish     *contract.FinishRequest
	adopt      *contract.AdoptRequest
	spawn      *contract.SpawnRequest
	keys       func(*claimfake.Table, int64) error
	target     dispatcherd.JobID // of a step; 0 = it looks for targets
	limits     flow.Limits
	heartbeat  contract.HeartbeatRequest
	subscribed bool

	begun      bool // it has arrived at the server
	answered   bool // an answer is in flight or has arrived
	loseAnswer bool // the answer is lost
	clientDone bool // the client has ended it
	serverDone bool // the server has ended it
	freed      bool
	verdict    contract.Verdict
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
	*s = statement{op: o, host: h.id, gen: s.gen + 1, index: -1, slow: 1}
	return i, s
}

// drop frees a record that neither client nor server uses.
func (w *world) drop(i int32) {
	s := w.statements.all[i]
	if !s.clientDone || !s.serverDone || s.freed {
		return
	}
	s.freed, s.tx = true, nil
	s.next, w.statements.free = w.statements.free, i
}

// begin returns the execution of a statement that is sent now.
func (h *host) begin(s *statement) *claimfake.Statement {
	c := h.client
	switch s.op {
	case opClaim:
		s.asked = len(s.claim.IDs)
		return c.Claim(s.claim)
	case opResolve:
		return c.Resolve(s.claim)
	case opLoad:
		return c.LoadPayloads(s.load)
	case opFinish:
		s.asked = len(s.finish.Items)
		return c.Finish(h.world.withoutCrashes(s.finish))
	case opGate:
		return c.SetSubscribed(s.subscribed)
	case opHeartbeat:
		return c.Heartbeat(&s.heartbeat)
	case opJoin:
		return c.Join()
	case opLeave:
		return c.Leave()
	case opAdopt:
		return c.Adopt(s.adopt)
	case opHandOver:
		return c.HandOver(h.world.detach.window.duration())
	case opKeys:
		return c.Run(s.keys)
	case opSettle:
		if s.target == 0 {
			return c.Due()
		}
		return c.StepFlow(s.target, s.limits)
	case opSpawn:
		parent := s.spawn.Parent
		return c.Spawn(s.spawn, func() []claimfake.Row { return h.world.children(parent) })
	}
	return c.Fetch(s.fetch)
}

// withoutCrashes removes the crashed jobs from a request in a world without release.
func (w *world) withoutCrashes(r *contract.FinishRequest) *contract.FinishRequest {
	if w.opt.Break != WithoutRelease {
		return r
	}
	crashed := func(f contract.Finish) bool { return f.Outcome == contract.Crashed }
	return &contract.FinishRequest{Items: slices.DeleteFunc(slices.Clone(r.Items), crashed), Again: r.Again}
}

// send sends a statement. The random source decides here whether it fails.
func (w *world) send(i int32) {
	s := w.statements.all[i]
	s.tx = w.hosts[s.host].begin(s)
	arrival := w.now + w.latency(s)
	switch {
	case w.postgres.down:
		s.serverDone = true
		w.reply(i, contract.Refused, w.now+millisecond)
		return
	case w.postgres.cut, w.hosts[s.host].isolated:
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
		s.slow, s.tx.Portion = moment(w.random.between(20, 2000)), 4
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
	if v != contract.OK && (s.op == opFetch || s.op == opBackfill || s.op == opGate || s.op == opLoad) {
		v = contract.Refused // an unknown outcome makes no difference for these
	}
	s.verdict = v
	h := w.hosts[s.host]
	w.plan(task{at: at, kind: hostAnswer, who: s.host, incarnation: h.incarnation, arg: i})
}

// proceed executes the next phase of a statement on the server.
func (w *world) proceed(i int32, gen uint32) {
	s := w.statements.all[i]
	if s.gen != gen || s.serverDone || !s.begun && !w.arrive(i) {
		return
	}
	if s.fetch != nil && (s.clientDone || s.answered) { // the client no longer waits, and the Core may reuse the request
		w.finished(i, contract.OK)
		return
	}
	switch s.tx.Step(w.dbNow()) {
	case claimfake.Running:
		w.plan(task{at: w.now + w.latency(s), kind: statementAt, arg: i, incarnation: s.gen})
	case claimfake.Polling:
		w.plan(task{at: w.now + millisecond, kind: statementAt, arg: i, incarnation: s.gen})
	case claimfake.Blocked:
		w.waitForLock(i)
	case claimfake.Done:
		w.committed(s)
		w.finished(i, s.tx.Verdict)
	}
}

// arrive begins the transaction.
func (w *world) arrive(i int32) bool {
	s := w.statements.all[i]
	if w.postgres.down || (w.postgres.cut || w.hosts[s.host].isolated) && !s.answered {
		s.serverDone = true // the client sees its connection break
		w.reply(i, contract.Unknown, w.now+millisecond)
		w.drop(i)
		return false
	}
	s.arrived, s.begun = w.now, true
	s.index = int32(len(w.statements.active))
	w.statements.active = append(w.statements.active, i)
	if s.slow > 1 {
		w.plan(task{at: w.now + w.scale.limit, kind: statementLate, arg: i, incarnation: s.gen})
	}
	return true
}

// committed counts what a statement has done.
func (w *world) committed(s *statement) {
	switch s.op {
	case opClaim:
		w.stats.Claims++
		w.stats.Won += s.tx.Claimed.Rows()
		w.stats.Skipped += s.asked - s.tx.Claimed.Rows()
	case opLoad:
		w.stats.Loaded += len(s.tx.Loaded.Won)
	case opFinish:
		w.stats.Finishes += s.asked
		w.stats.Stale += len(s.tx.Finished.Stale)
	case opAdopt:
		w.stats.Busy += len(s.tx.Adopted.Busy)
	case opHeartbeat:
		w.stats.TakenOver += s.tx.Released
	case opSettle:
		w.stats.EndsCounted += s.tx.Stepped.Messages
	case opJoin:
		w.runs = append(w.runs, s.host)
		w.judge.leased(s.tx.Joined, w.now+w.scale.lease)
	}
}

// waitForLock continues the statement when a lock is released.
func (w *world) waitForLock(i int32) {
	s := w.statements.all[i]
	w.stats.LockWaits++
	for at, n := s.tx.BlockedBy(), 0; at != nil; at, n = at.BlockedBy(), n+1 {
		if at == s.tx || n > len(w.statements.all) {
			w.violate("deadlock: statements of dispatchers %d and %d wait for one another", s.tx.Dispatcher(), s.tx.BlockedBy().Dispatcher())
			return
		}
	}
	w.postgres.waiters = append(w.postgres.waiters, i)
	w.plan(task{at: w.now + w.scale.limit, kind: statementLate, arg: i, incarnation: s.gen})
}

// wakeWaiters continues the statements that wait for a lock.
func (w *world) wakeWaiters() {
	for _, i := range w.postgres.waiters {
		if s := w.statements.all[i]; !s.serverDone {
			w.plan(task{at: w.now, kind: statementAt, arg: i, incarnation: s.gen})
		}
	}
	w.postgres.waiters = w.postgres.waiters[:0]
}

// statementTimeout rolls back a statement that has reached the time limit of
// the server.
func (w *world) statementTimeout(i int32, gen uint32) {
	s := w.statements.all[i]
	if s.gen != gen || s.serverDone || w.now-s.arrived < w.scale.limit {
		return
	}
	s.tx.Abort()
	w.finished(i, contract.Refused)
}

// finished ends the server's part: it sends or loses the answer.
func (w *world) finished(i int32, v contract.Verdict) {
	s := w.statements.all[i]
	s.serverDone = true
	st := &w.statements
	last := st.active[len(st.active)-1]
	st.active[s.index] = last
	st.all[last].index = s.index
	st.active = st.active[:len(st.active)-1]
	s.index = -1
	if w.postgres.cut || w.hosts[s.host].isolated {
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
	case !w.opt.SlowScans || s.fetch == nil || s.answered:
	case s.fetch.Backfill:
		w.stats.BackfillScans++
		return w.random.span(second/4, 2*second)
	case len(s.fetch.Lanes) > 0 && s.fetch.Lanes[0].After == (contract.Key{}) && w.random.below(4) == 0:
		return w.random.span(second/4, second/2)
	}
	return 0
}

// breakConnections aborts all statements on the server, as a crash of Postgres
// does.
func (w *world) breakConnections() {
	for len(w.statements.active) > 0 {
		i := w.statements.active[0]
		s := w.statements.all[i]
		s.loseAnswer = true
		s.tx.Abort()
		w.finished(i, contract.Unknown)
	}
	w.postgres.waiters = w.postgres.waiters[:0]
}

// abandon ends the client's part of the statements of a dead process.
// Statements on the server continue, because a backend notices a dead client
// only when it answers.
func (w *world) abandon(list []int32) {
	for _, i := range list {
		s := w.statements.all[i]
		s.clientDone, s.answered = true, true
		if !s.begun && !s.serverDone && (s.tx == nil || w.random.below(2) == 0) {
			s.serverDone = true // it was in the buffer of the dead process
		}
		w.drop(i)
	}
}
