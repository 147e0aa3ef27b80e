package sim

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// A host is a machine with one dispatcher: a core and its shell. The host plays the outer
// layer of the daemon: sockets, connections to Postgres, and timers.
type host struct {
	world        *world
	id           int16
	incarnation  uint32 // grows with every start and every crash
	core         *actor.Core
	up           bool
	stopped      bool
	stop         *shell.Stop   // after SIGTERM; nil = it runs
	since        moment        // since when it runs without interruption
	terminatedAt time.Duration // when SIGTERM arrived, by its clock
	departures   int           // statements by which it gave up its lease
	fenced       bool          // it could not prove its lease at some time of this incarnation
	revoked      bool          // it told its workers to stop
	isolated     bool          // it cannot reach Postgres
	sentAway     bool          // it is drained
	inbox        []task        // tasks that arrived while it was suspended
	clock        clock

	client     *claimfake.Client
	pgConns    [pgConns][]int32 // statements by kind of connection; the first width of them are in flight
	admission  *admitter        // nil = there are no jobs with keys, or it has not joined
	settlement *settler         // nil = there are no batches and flows, or it has not joined
	ports      shell.Ports
	lease      shell.Lease
	joinBegun  time.Duration // when the first Join was sent
	heartbeats int32         // number of the last heartbeat
	beatBegun  time.Duration // when it was sent
	beating    bool          // a heartbeat or a Join is in flight
	adopted    bool          // rows were taken over since the last heartbeat began
	shared     bool          // this incarnation has read what was learned of durations

	conns    []int32
	lastSlot dispatcherd.SlotID
	calls    calls

	alarmAt   timing.Instant // when the timer is set for
	alarm     int32          // number of the current timer
	fx        []effect.Effect
	idleTicks int           // timers without work since the last sample
	claimed   actor.Claimed // reused
	fetched   actor.Fetched
	ended     actor.Finished
}

// clock is the monotonic clock of a host. It runs fast or slow, and jumps.
type clock struct {
	base int64 // its microseconds at from
	from moment
	ppm  int64 // its microseconds per true second
}

func (c *clock) read(now moment) int64 { return c.base + int64(now-c.from)*c.ppm/1_000_000 }

func (c *clock) set(now moment, base, ppm int64) { *c = clock{base, now, ppm} }

// when returns the first true moment at which the clock shows at least us.
func (c *clock) when(us int64) moment {
	if us <= c.base {
		return c.from
	}
	return c.from + moment((us-c.base)*1_000_000/c.ppm+1)
}

// time is the time on the clock of the host.
func (h *host) time() time.Duration { return moment(h.clock.read(h.world.now)).duration() }

func (h *host) instant() timing.Instant { return timing.Instant(h.clock.read(h.world.now) / 1000) }

// start begins a new incarnation. It joins first, as the daemon does.
func (h *host) start() {
	w := h.world
	if h.up {
		return
	}
	h.incarnation++
	h.up, h.stopped, h.stop, h.core = true, false, nil, nil
	h.departures, h.fenced, h.revoked, h.beating, h.adopted, h.shared = 0, false, false, false, false, false
	ppm := int64(1_000_000)
	if w.has(Clocks) && w.wrongHostClocks() {
		ppm += w.random.between(-w.keys.drift(), w.keys.drift())
	}
	h.clock.set(w.now, 1_000_000, ppm)
	h.lastSlot = 0
	h.client = claimfake.NewClient(w.table)
	h.client.Lease = w.scale.lease.duration()
	h.calls = calls{}
	h.joinBegun = h.time()
	h.submit(w.statement(opJoin, h))
}

// joined creates the core after a successful join.
func (h *host) joined() {
	w := h.world
	h.lease = shell.NewLease(w.scale.lease.duration(), w.scale.heartbeat.duration(), w.scale.timeout.duration(), h.joinBegun)
	h.ports = shell.Ports{Statement: h.sendStatement, Workers: workerPort{h}, Callers: callerPort{h}, Rows: rowPort{h}}
	h.core = actor.New(w.config(h))
	h.admission, h.settlement = w.keys.admitter(h), w.joins.settler(h)
	h.since = w.now
	h.alarmAt = timing.Never
	h.step(actor.Tick{})
	h.plan(hostHeartbeat, w.now, h.heartbeats)
	h.plan(hostGuard, w.now, 0)
	h.plan(hostCall, w.now+w.scale.callGap, 0)
	if w.has(Notify) && w.random.below(4) == 0 {
		h.plan(hostNotification, w.now+moment(w.random.below(int64(second))), listenerLost)
	}
}

func (h *host) plan(k kind, at moment, arg int32) {
	h.world.plan(task{at: at, kind: k, who: h.id, incarnation: h.incarnation, arg: arg})
}

// do executes a task of the process.
func (h *host) do(t *task) {
	w := h.world
	if h.core == nil && t.kind != hostAnswer {
		return
	}
	if h.departing() && t.kind != hostAnswer && t.kind != hostStage {
		return // the loop has ended
	}
	switch t.kind {
	case hostTimer:
		h.fireTimer(t.arg)
	case hostHeartbeat:
		if t.arg == h.heartbeats {
			h.heartbeat()
		}
	case hostRead:
		w.readAtHost(w.conns[t.arg])
	case hostSilence:
		h.closeSilent(w.conns[t.arg])
	case hostNotification:
		h.notified(t.arg)
	case hostAnswer:
		h.answered(t.arg)
	case hostCall:
		h.request()
	case hostAbandon:
		h.abandonRequest(t.arg)
	case hostNoWait:
		h.endCapacityWait(t.arg)
	case hostGuard:
		h.guard()
	case hostStage:
		h.advanceStop()
	case hostWelcome:
		h.finishHandshake(w.conns[t.arg])
	case hostCloseSession:
		h.closeSession(w.conns[t.arg])
	case hostAdmits:
		h.admission.step(t.arg)
	case hostSettles:
		h.settlement.step(t.arg)
	case hostHandshakeTimeout:
		h.abortHandshake(w.conns[t.arg])
	}
}

// deliver passes events to the core, in order.
func (h *host) deliver(events ...actor.Event) {
	for _, ev := range events {
		switch ev.(type) {
		case nil:
			continue
		case actor.Disowned:
			h.fenced = true
		case actor.Interrupted:
			h.revoked = true
		}
		h.step(ev)
	}
}

// step passes one event to the core and performs the effects.
func (h *host) step(ev actor.Event) {
	w := h.world
	w.stats.Steps++
	now := h.instant()
	h.fx = h.core.Step(now, ev, h.fx[:0])
	for _, e := range h.fx {
		w.hashEffect(h, e)
	}
	h.ports.Perform(h.fx)
	h.setAlarm()
}

// setAlarm keeps one timer planned that fires no later than the core asks for.
func (h *host) setAlarm() {
	want := h.core.NextWake()
	if want == timing.Never || want >= h.alarmAt {
		return
	}
	h.alarmAt = max(want, h.instant()+1)
	h.alarm++
	h.plan(hostTimer, h.clock.when(int64(h.alarmAt)*1000), h.alarm)
}

// fireTimer handles the timer. It may be too early if the core changed its wake
// time.
func (h *host) fireTimer(alarm int32) {
	if alarm != h.alarm {
		return
	}
	h.alarmAt = timing.Never
	if h.core.NextWake() <= h.instant() {
		h.step(actor.Tick{})
		if len(h.fx) == 0 {
			h.world.stats.Ticks++
			h.idleTicks++
		}
		return
	}
	h.setAlarm()
}

// width returns the number of connections of the kind that executes an operation.
func (h *host) width(o op) int {
	switch o {
	case opClaim, opResolve:
		return h.world.scale.claims
	case opFinish:
		return h.world.scale.finishes
	}
	return 1
}

// submit queues a statement on its connection.
func (h *host) submit(i int32, s *statement) {
	l := pgConnOf[s.op]
	h.pgConns[l] = append(h.pgConns[l], i)
	if len(h.pgConns[l]) <= h.width(s.op) {
		h.world.send(i)
	}
}

// answered passes an answer to the core and sends the next statement of the
// connection.
func (h *host) answered(i int32) {
	w := h.world
	s := w.statements.all[i]
	l := pgConnOf[s.op]
	at := slices.Index(h.pgConns[l], i)
	h.pgConns[l] = slices.Delete(h.pgConns[l], at, at+1)
	h.client.Answered(s.tx, s.verdict)
	if n := h.width(s.op); len(h.pgConns[l]) >= n {
		w.send(h.pgConns[l][n-1])
	}
	if !h.departing() || s.op == opLeave || s.op == opHandOver {
		h.report(s)
	}
	s.clientDone = true
	w.drop(i)
}

// report turns an answer into an event.
func (h *host) report(s *statement) {
	switch s.op {
	case opFetch, opBackfill:
		h.fetched.Request = s.fetch
		h.fetched.Result = contract.FetchResult{
			Verdict:    s.verdict,
			DBNow:      s.tx.Fetched.DBNow,
			Candidates: s.tx.Fetched.Candidates,
			Named:      s.tx.Fetched.Named,
		}
		h.step(&h.fetched)
	case opClaim, opResolve:
		h.reportClaim(s)
	case opLoad:
		h.reportLoad(s)
	case opFinish:
		h.reportFinish(s)
	case opGate:
		h.step(actor.GateSet{Subscribed: s.subscribed, Verdict: s.verdict})
	case opHeartbeat:
		h.heartbeatDone(s)
	case opJoin:
		h.reportJoin(s)
	case opAdopt:
		h.reportAdopt(s)
	case opLeave, opHandOver:
		h.departed(s)
	case opKeys:
		h.admission.answered(s)
	case opSettle:
		h.settlement.answered(s)
	case opSpawn:
		h.reportSpawn(s)
	}
}

func (h *host) reportClaim(s *statement) {
	h.claimed.Request = s.claim
	h.claimed.Result = contract.ClaimResult{Verdict: s.verdict}
	switch s.verdict {
	case contract.OK:
		h.claimed.Result.Won, h.claimed.Result.Loading = s.tx.Claimed.Won, s.tx.Claimed.Loading
	case contract.Refused:
		h.claimed.Result.OldEpoch = s.tx.Claimed.OldEpoch
	}
	if s.verdict != contract.Unknown {
		h.claimed.Result.Unclaimable = s.tx.Claimed.Unclaimable
	}
	h.admission.claimed(h.claimed.Result.Won, h.claimed.Result.Loading)
	h.settlement.claimed(h.claimed.Result.Won, h.claimed.Result.Loading)
	if h.lease.Doubts(h.time(), h.claimed.Result.Verdict) {
		h.claimed.Result = contract.ClaimResult{Verdict: contract.Unknown}
	}
	h.step(&h.claimed)
	if h.claimed.Result.Verdict != contract.Unknown {
		h.world.judge.setAside(h.world, h, h.claimed.Result.Unclaimable)
	}
}

// reportLoad passes payloads to the core. A request without an answer is repeated.
func (h *host) reportLoad(s *statement) {
	if s.verdict != contract.OK || h.lease.Doubts(h.time(), s.verdict) {
		h.sendStatement(&effect.Load{Request: s.load})
		return
	}
	result := s.tx.Loaded
	result.Verdict = s.verdict
	h.step(actor.Loaded{Result: result})
}

func (h *host) reportFinish(s *statement) {
	result := contract.FinishResult{Verdict: s.verdict}
	if s.verdict == contract.OK {
		result.Stale, result.Deferred = s.tx.Finished.Stale, s.tx.Finished.Deferred
		h.world.stats.Deferred += len(result.Deferred)
	}
	if h.world.opt.Break == WithoutReturn && s.verdict == contract.OK {
		for n := range s.finish.Items {
			if f := &s.finish.Items[n]; f.Outcome == contract.Released || f.Outcome == contract.Crashed {
				result.Stale = append(result.Stale, f.ID)
			}
		}
		slices.Sort(result.Stale)
		result.Stale = slices.Compact(result.Stale)
	}
	h.admission.finished(s.finish, &result)
	h.settlement.finished(s.finish, &result)
	h.ended.Request = s.finish
	h.ended.Result = result
	h.step(&h.ended)
}

// reportJoin handles the answer to a join, at the start or after a lost lease.
func (h *host) reportJoin(s *statement) {
	ok := s.verdict == contract.OK
	if h.core == nil {
		if ok {
			h.joined()
			return
		}
		h.crash() // the process exits and is started again
		return
	}
	if ok {
		h.deliver(h.lease.Joined()...)
	}
	h.planHeartbeat(!ok)
}

// reportAdopt passes the answer to an adoption to the core.
func (h *host) reportAdopt(s *statement) {
	ev := actor.Adopted{Request: s.adopt, Result: contract.AdoptResult{Verdict: s.verdict}}
	if s.verdict == contract.OK {
		ev.Result = s.tx.Adopted
	}
	if h.lease.Doubts(h.time(), ev.Result.Verdict) {
		ev.Result = contract.AdoptResult{Verdict: contract.Unknown}
	}
	h.step(ev)
	if shell.TookOver(ev.Request, &ev.Result) {
		h.adopted = true
		if !h.beating {
			h.heartbeat()
		}
	}
}
