package claimfake

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// State says how a statement continues after a phase.
type State uint8

// The states.
const (
	Running State = iota // another phase follows
	Blocked              // it waits for a lock: see Observer.Unlocked and Statement.BlockedBy
	Polling              // it waits a short time for a row lock: run the next phase after a millisecond
	Done                 // it has ended, and its results are valid
)

// Statement is one statement in execution. The client has sent it; the first phase begins
// its transaction.
type Statement struct {
	// Portion is the number of rows that a claim locks in one phase; 0 = all.
	Portion int

	// The results.
	Verdict   contract.Verdict
	Fetched   contract.FetchResult
	Claimed   contract.ClaimResult
	Loaded    contract.LoadResult
	Finished  contract.FinishResult
	Adopted   contract.AdoptResult
	Heartbeat contract.HeartbeatResult
	Joined    int32 // id of the new run
	Released  int   // rows that it made pending
	Stepped   Stepped
	Due       []dispatcherd.JobID
	Spawned   contract.SpawnResult
	Err       error // of Client.Run

	table *Table
	next  func(*Statement, int64) State
	me    int32
	epoch int32 // the epoch that a claim names; if OldEpoch or resolves is set, the epoch that was read

	fetch      contract.FetchRequest
	claim      *contract.ClaimRequest
	load       *contract.LoadRequest
	finish     *contract.FinishRequest
	adopt      *contract.AdoptRequest
	beat       *contract.HeartbeatRequest
	token      int64 // of a claim or adoption
	forget     []int64
	holds      func(dispatcherd.JobID, int64) bool // of a heartbeat: whether its client runs a row
	hold       int64
	begin      dispatcher // of a Join
	spawn      spawn
	step       flowStep // its target is locked
	subscribed bool
	resolves   bool // it reads what an earlier claim took

	began     int64  // time of the first phase; now() of the transaction
	snapshot  uint64 // last commit that it sees
	contended bool   // of a claim or finish: it skips locked rows instead of waiting for a short time
	met       bool   // of a claim: it met a lock and started again
	polls     int
	cursor    int
	picked    []int // positions of items that passed the first check
	applied   []bool
	locked    []*Row
	unheld    []unheldRow // of a heartbeat
	shares    bool
	exclusive bool
	allowed   bool // its dispatcher held the lease
	blockedBy *Statement
}

// Dispatcher returns the id under which the statement was sent.
func (s *Statement) Dispatcher() int32 { return s.me }

// Token returns the token of a claim or adoption.
func (s *Statement) Token() int64 { return s.token }

// Began returns the time of the first phase.
func (s *Statement) Began() int64 { return s.began }

// BlockedBy returns the statement that holds the lock for which s waits. It returns nil if
// s waits for no lock, or if several statements hold the lock.
func (s *Statement) BlockedBy() *Statement { return s.blockedBy }

// Step runs the next phase.
func (s *Statement) Step(now int64) State {
	if s.began == 0 {
		s.began, s.snapshot = now, s.table.commits
	}
	s.blockedBy = nil
	state := s.next(s, now)
	if state == Done {
		s.unlock()
	}
	return state
}

// Do runs all phases. It panics if the statement must wait for another one.
func (s *Statement) Do(now int64) *Statement {
	for {
		switch s.Step(now) {
		case Done:
			return s
		case Blocked:
			panic("claimfake: a statement waits for a lock that another one holds")
		}
	}
}

// Abort rolls the statement back. None of its phases may run afterwards.
func (s *Statement) Abort() {
	s.unlock()
	s.Verdict = contract.Refused
}

// then sets the next phase.
func (s *Statement) then(next func(*Statement, int64) State) State {
	s.next = next
	return Running
}

// done ends the statement.
func (s *Statement) done(v contract.Verdict) State {
	s.Verdict = v
	return Done
}

// block waits for a lock.
func (s *Statement) block(holder *Statement) State {
	s.blockedBy = holder
	return Blocked
}

// share takes the share lock on the row of its dispatcher. The caller has checked that no
// other statement has the exclusive lock.
func (s *Statement) share(d *dispatcher) {
	d.shares++
	s.shares = true
}

// lockAlone takes the exclusive lock on the row of its dispatcher and continues with next.
// While another statement has a lock on the row, the statement waits.
func (s *Statement) lockAlone(next func(*Statement, int64) State) State {
	d := s.table.dispatcher(s.me)
	if d.exclusive != nil || d.shares > 0 {
		return s.block(d.exclusive)
	}
	d.exclusive, s.exclusive = s, true
	return s.then(next)
}

// lock locks a row. It reports false if another statement holds the lock.
func (s *Statement) lock(r *Row) bool {
	if r.lock != nil {
		return false
	}
	r.lock = s
	s.locked = append(s.locked, r)
	return true
}

// unlock releases all locks.
func (s *Statement) unlock() {
	locks := s.table.flows.locks
	target := locks[s.step.target] == s
	if len(s.locked) == 0 && !target && !s.shares && !s.exclusive {
		return
	}
	for _, r := range s.locked {
		r.lock = nil
	}
	if target {
		delete(locks, s.step.target)
	}
	s.locked = s.locked[:0]
	d := s.table.dispatcher(s.me)
	if s.shares {
		d.shares--
	}
	if s.exclusive {
		d.exclusive = nil
	}
	s.shares, s.exclusive = false, false
	s.table.observer.Unlocked()
}

// Lock returns a statement of another transaction, which holds the lock of a row until it
// is aborted.
func (t *Table) Lock(id dispatcherd.JobID) *Statement {
	s := &Statement{table: t}
	s.lock(t.rows[id])
	return s
}

// read reads lanes in one snapshot.
func (s *Statement) read(int64) State {
	s.Fetched = contract.FetchResult{DBNow: s.began}
	for i := range s.fetch.Lanes {
		q := &s.fetch.Lanes[i]
		lane := contract.Lane{Type: q.Type, Priority: q.Priority, Class: q.Class}
		if s.table.Unreadable[lane] {
			continue
		}
		for _, k := range s.table.lane(lane).read(q, s.fetch.Backfill, s.mayFetch) {
			s.Fetched.Candidates = append(s.Fetched.Candidates, contract.Candidate{Lane: i, Key: k})
		}
	}
	for i, typ := range s.fetch.Classes {
		for _, lane := range s.table.named(typ, func(id dispatcherd.JobID) bool { return s.table.rows[id].admits(s.me) }) {
			lane.Type = i
			s.Fetched.Named = append(s.Fetched.Named, lane)
		}
	}
	return s.done(contract.OK)
}

// mayFetch reports whether a fetch returns a pending row.
func (s *Statement) mayFetch(id dispatcherd.JobID) bool {
	r := s.table.rows[id]
	return r.admits(s.me) && (!s.fetch.SkipLocked || !r.Locked())
}

// setGate subscribes to notifications or ends the subscription.
func (s *Statement) setGate(int64) State {
	d := s.table.dispatcher(s.me)
	if d.lost {
		return s.done(contract.Refused)
	}
	d.subscribed = s.subscribed
	return s.done(contract.OK)
}

// won returns what a claim, Resolve or adoption says about a row, without payload and deadline.
func (r *Row) won() contract.Won {
	return contract.Won{ID: r.ID, Type: r.Type, Priority: r.Priority, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts,
		Failures: r.Failures, Crashes: r.Crashes, Timeout: r.Timeout, Backoff: r.Backoff, Target: r.targetOf(),
		Delivery: contract.Delivery{Fence: max(r.Fence, 0), Traceparent: r.Traceparent}}
}

// read adds the payload to what is said about a row, or the reason why there is none.
func (r *Row) read(w contract.Won) contract.Won {
	err := r.Unreadable
	if err == nil && len(r.Payload) > 0 {
		err = jsontext.CheckPayload(r.Payload)
	}
	if err != nil {
		w.Unfit = "the payload cannot be sent to a worker: " + err.Error()
		return w
	}
	w.Payload = slices.Clone(r.Payload)
	return w
}

// take adds a row to the answer of a claim or Resolve. Resolve reads no payload.
func (s *Statement) take(r *Row, now int64) {
	w := r.won()
	if r.Deadline != 0 && s.table.Skip&CheckDeadline == 0 {
		w.Left = cmp.Or(max(time.Duration(r.Deadline-now)*time.Microsecond, -time.Millisecond).Truncate(time.Millisecond), -1)
	}
	if s.resolves && len(r.Payload) > 0 || len(r.Payload) > claim.SmallPayload || r.Unreadable != nil {
		s.Claimed.Loading = append(s.Claimed.Loading, w)
		return
	}
	s.Claimed.Won = append(s.Claimed.Won, r.read(w))
}

// readPayloads follows loadSQL.
func (s *Statement) readPayloads(int64) State {
	for _, w := range s.load.Rows {
		if r := s.table.rows[w.ID]; r != nil && r.Status == dispatcherd.Running && r.Attempt == w.Attempt && r.Dispatcher == s.me {
			s.Loaded.Won = append(s.Loaded.Won, r.read(w))
		} else {
			s.Loaded.Lost = append(s.Loaded.Lost, w.ID)
		}
	}
	return s.done(contract.OK)
}
