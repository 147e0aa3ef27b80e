package actor

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// reference decides as article 1 says. It scores every pending job and every
// waiting request on every free slot, places the best pair, and repeats this
// until no pair is left. It shares only the formula with Core. A request of a
// type that has just received one may also preempt a queued job with a lower
// score from a reserved slot.
type reference struct {
	weights    scoring.Weights
	slots      map[dispatcherd.SlotID]*referenceSlot
	waiting    map[dispatcherd.JobID]*referenceJob
	otherSlots map[string]int            // slots of other dispatchers, by type
	shares     map[string]contract.Share // shares of this dispatcher; rows of other shares have the penalty
	owner      map[dispatcherd.SlotID]dispatcherd.SessionID
	paused     map[string]*contract.Pause
	drained    map[dispatcherd.SessionID]bool
	turns      int
}

type referenceSlot struct {
	id          dispatcherd.SlotID
	types       []string
	busy        bool
	draining    bool
	reservedFor *referenceJob // the row for which the slot is reserved
	sent        bool          // the claim of that row is in flight
	turn        int           // number of the reservation
}

type referenceJob struct {
	id        dispatcherd.JobID
	typ       string
	priority  dispatcherd.Priority
	since     int64                 // ms; database clock for rows, Instant for requests
	pin       dispatcherd.SessionID // the only session that may run it; 0 = any
	preempted bool                  // it was preempted since the last scan
}

func (j *referenceJob) number() int64 {
	if j.id < 0 {
		return -int64(j.id)
	}
	return int64(j.id)
}

type placement struct {
	job  dispatcherd.JobID
	slot dispatcherd.SlotID
}

// decide places all jobs that can be placed and records slots and jobs as
// taken. fresh names the types that received a request.
func (ref *reference) decide(now, dbNow int64, fresh map[string]bool) []placement {
	placed := []placement{}
	for {
		var best *referenceJob
		var slot *referenceSlot
		for _, j := range ref.sorted() {
			if !ref.due(j, dbNow) || best != nil && !ref.before(j, best, now, dbNow) {
				continue
			}
			if s := ref.slotFor(j, now, dbNow, fresh); s != nil {
				best, slot = j, s
			}
		}
		if best == nil {
			return placed
		}
		if q := slot.reservedFor; q != nil && !slot.sent {
			ref.waiting[q.id] = q
			q.preempted = true
		}
		ref.turns++
		slot.busy, slot.reservedFor, slot.sent, slot.turn = true, nil, false, ref.turns
		if best.id > 0 {
			slot.reservedFor = best
		}
		delete(ref.waiting, best.id)
		placed = append(placed, placement{best.id, slot.id})
	}
}

// slotFor returns the slot on which a job would start now, or nil.
func (ref *reference) slotFor(j *referenceJob, now, dbNow int64, fresh map[string]bool) (best *referenceSlot) {
	if j.pin != 0 {
		for id, s := range ref.slots {
			if ref.owner[id] == j.pin && !s.busy && !s.draining && slices.Contains(s.types, j.typ) && (best == nil || s.moreSpecialised(best)) {
				best = s
			}
		}
		return best
	}
	if _, free := ref.capacity(j.typ); free != nil || j.id > 0 || !fresh[j.typ] {
		return free
	}
	for _, o := range ref.waiting {
		if o.typ == j.typ && o.pin == 0 && ref.due(o, dbNow) && o != j && ref.before(o, j, now, dbNow) {
			return nil
		}
	}
	for _, s := range ref.slots {
		if s.reservedFor == nil || s.draining || !slices.Contains(s.types, j.typ) || !ref.before(j, s.reservedFor, now, dbNow) {
			continue
		}
		if best == nil || s.better(best) {
			best = s
		}
	}
	return best
}

// moreSpecialised prefers fewer types, then the smaller id.
func (s *referenceSlot) moreSpecialised(o *referenceSlot) bool {
	return len(s.types) < len(o.types) || len(s.types) == len(o.types) && s.id < o.id
}

// better prefers fewer types, then a reservation whose claim is not sent, then
// the later reservation.
func (s *referenceSlot) better(o *referenceSlot) bool {
	switch {
	case len(s.types) != len(o.types):
		return len(s.types) < len(o.types)
	case s.sent != o.sent:
		return o.sent
	}
	return s.turn > o.turn
}

func (ref *reference) before(a, b *referenceJob, now, dbNow int64) bool {
	x, y := ref.score(a, now, dbNow), ref.score(b, now, dbNow)
	return x > y || x == y && ref.older(a, b, now, dbNow)
}

func (ref *reference) score(j *referenceJob, now, dbNow int64) scoring.Milli {
	mode, age := dispatcherd.Queued, dbNow-j.since-ref.penalty(j)
	if j.id < 0 {
		mode, age = dispatcherd.OnDemand, now-j.since
	}
	capacity, _ := ref.capacity(j.typ)
	return ref.weights.Score(mode, j.priority, age, capacity+ref.otherSlots[j.typ]).Total()
}

func (ref *reference) older(a, b *referenceJob, now, dbNow int64) bool {
	at := func(j *referenceJob) int64 {
		if j.id < 0 {
			return j.since
		}
		return now - (dbNow - j.since) + ref.penalty(j)
	}
	if at(a) != at(b) {
		return at(a) < at(b)
	}
	if a.number() != b.number() {
		return a.number() < b.number()
	}
	return a.id < b.id
}

func (ref *reference) sorted() []*referenceJob {
	var all []*referenceJob
	for _, j := range ref.waiting {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *referenceJob) int { return int(a.id - b.id) })
	return all
}

// capacity counts the slots that support a type and finds the free one with
// the fewest types.
func (ref *reference) capacity(typ string) (n int, best *referenceSlot) {
	for _, s := range ref.slots {
		if s.draining || !slices.Contains(s.types, typ) {
			continue
		}
		n++
		if s.busy {
			continue
		}
		if best == nil || s.moreSpecialised(best) {
			best = s
		}
	}
	return n, best
}

// history is one random history of a dispatcher and of its reference.
type history struct {
	t         *testing.T
	seed      uint64
	rng       *rand.Rand
	core      *Core
	table     *table
	reference *reference
	now       timing.Instant
	nextJob   dispatcherd.JobID
	nextReq   dispatcherd.JobID
	skipped   dispatcherd.JobID // an id that was drawn but not used; 0 = none
	nextSlot  dispatcherd.SlotID
	nextSess  dispatcherd.SessionID
	sessions  []dispatcherd.SessionID
	numbers   map[dispatcherd.SessionID]int32
	owner     map[dispatcherd.SlotID]dispatcherd.SessionID
	number    map[dispatcherd.SlotID]int32
	running   []*effect.Send  // not yet answered
	queue     []effect.Effect // statements in flight
	placed    []placement
	hold      bool // fetches are answered before each decision
	backdate  bool
	wide      bool // every lane fits into one fetch, and every decision into one claim
	slow      bool // full scans are slow
	shared    bool // rows are shared with other dispatchers
	me        int  // number of the dispatcher
	offered   map[dispatcherd.SlotID]dispatcherd.Slot
	hasOffers bool // a worker has sent a resume offer
	adopted   int
	handovers int
	helped    int // rows of other shares that were placed
	log       []string
}

var referenceTypes = []string{"a", "b", "c", "d"}

func newHistory(t *testing.T, seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 7))
	cfg := DefaultConfig()
	cfg.Seed = [2]uint64{seed, 1}
	cfg.Poll = msDuration(200)
	cfg.Patience = msDuration(1 << 40) // exactness is what is tested
	cfg.LaneLength = 1 + rng.IntN(4)
	cfg.Limits.ClaimBatch = 1 + rng.IntN(6)
	cfg.LanesPerFetch = 11 + rng.IntN(40)
	cfg.KnownRows = 1 + rng.IntN(20)
	wide := seed%3 == 0
	if wide {
		cfg.LaneLength, cfg.Limits.ClaimBatch = 1000, 1000
	}
	cfg.RetryStatement = timing.Backoff{Base: msDuration(10), Max: msDuration(500)}
	cfg.Retry = timing.Backoff{Base: msDuration(10), Max: msDuration(40)}
	h := &history{
		t:       t,
		seed:    seed,
		rng:     rng,
		wide:    wide,
		slow:    seed%5 > 2,
		shared:  seed%6 == 0,
		me:      otherDispatcher + 1,
		offered: map[dispatcherd.SlotID]dispatcherd.Slot{},
		core:    New(cfg),
		table:   newTable(),
		reference: &reference{
			weights: cfg.Weights,
			slots:   map[dispatcherd.SlotID]*referenceSlot{},
			waiting: map[dispatcherd.JobID]*referenceJob{},
		},
		numbers: map[dispatcherd.SessionID]int32{},
		owner:   map[dispatcherd.SlotID]dispatcherd.SessionID{},
		number:  map[dispatcherd.SlotID]int32{},
	}
	h.reference.owner = h.owner
	return h
}

// pause draws a time between two decisions, in milliseconds.
func (h *history) pause(limit int) int64 { return certain(int64(h.rng.IntN(3) * h.rng.IntN(limit))) }

// certain returns 0, or at least a second. Between them a non-local row of this age can be placed or not, depending on
// when the core saw it first.
func certain(ms int64) int64 {
	if 0 < ms && ms < 1_000 {
		ms += 1_000
	}
	return ms
}

// step handles events at one instant. It answers the fetches that the events
// cause before a decision is made, and compares the decisions with the
// reference.
func (h *history) step(events ...Event) {
	h.hold = true
	h.pollForHidden()
	h.feed(Together{Events: append(events, Listening{On: true})})
	for h.answerOne(is[*effect.Fetch]) || h.answerOne(is[*effect.Adopt]) {
	}
	h.hold = false
	want := h.reference.decide(int64(h.now), h.table.now/1000, nil)
	h.placed = []placement{}
	h.feed(Tick{})
	// With small claims and short lanes one decision takes several statements.
	// Its result must be the same once all statements are answered. All claims
	// are won here.
	for h.answerOne(is[*effect.Fetch]) || h.answerOne(is[*effect.SetGate]) || h.answerOne(is[*effect.Claim]) {
	}
	byJob := func(a, b placement) int { return int(a.job - b.job) } // jobs are sent in the order of claims
	slices.SortFunc(want, byJob)
	slices.SortFunc(h.placed, byJob)
	for _, s := range h.reference.slots {
		if s.reservedFor != nil && h.reference.nonLocal(s.reservedFor) {
			h.helped++
		}
		s.reservedFor = nil // all claims are answered
	}
	require.Equal(h.t, want, h.placed, "seed %d: decisions at %d differ; history:\n%v", h.seed, h.now, h.log)
}

// disturbedStep is a step in which claims are lost, refused or have an unknown
// outcome. The decisions then depend on the order of answers, so the reference
// cannot predict them. After all statements are complete, the reference must
// find nothing left to place.
func (h *history) disturbedStep(events ...Event) {
	h.placed = []placement{}
	h.feed(Together{Events: append(events, Listening{On: true})})
	for h.answerOne(is[*effect.Fetch]) {
	}
	if len(h.sessions) > 0 && h.rng.IntN(3) == 0 {
		h.feed(h.randomDisconnect()) // while slots of that session are reserved
	}
	if h.rng.IntN(3) == 0 {
		h.feed(h.randomControls()) // while claims are in flight
	}
	calm := 0 // consecutive rounds without a disturbed answer
	for calm < 3 {
		for h.answerOne(is[*effect.Fetch]) || h.answerOne(is[*effect.SetGate]) || h.answerBadly(&calm) {
		}
		h.pass(1_000) // longer than the statement backoff of this test
		calm++
	}
	h.syncReference()
}

// syncReference copies the decisions of the core to the reference, which must
// find nothing left to place.
func (h *history) syncReference() {
	h.pollNow()
	h.feed(Tick{})
	for h.answerOne(is[*effect.Fetch]) || h.answerOne(is[*effect.SetGate]) || h.answerOne(is[*effect.Claim]) ||
		h.answerOne(is[*effect.Adopt]) {
	}
	for _, s := range h.reference.slots {
		s.busy, s.reservedFor = false, nil
	}
	for _, p := range h.placed {
		if p.job > 0 {
			delete(h.reference.waiting, p.job) // if its worker died, recordEnds adds it again
		}
	}
	for _, e := range h.running {
		h.reference.slots[e.Slot].busy = true
	}
	for _, j := range h.core.jobs {
		if j.id < 0 && j.state == stateWaiting {
			h.reference.waiting[j.id] = h.referenceOf(j)
		} else {
			delete(h.reference.waiting, j.id)
		}
	}
	for id := range h.reference.waiting {
		if id < 0 && h.core.jobs[id] == nil {
			delete(h.reference.waiting, id) // the request was answered because too many of its workers died
		}
	}
	for _, r := range h.table.Rows() {
		if r.Status == dispatcherd.Running && int(r.Dispatcher) != h.me {
			delete(h.reference.waiting, r.ID)
		}
	}
	require.Empty(h.t, h.reference.decide(int64(h.now), h.table.now/1000, nil), "seed %d: left unplaced; history:\n%v", h.seed, h.log)
}

// answerBadly answers a claim or adoption with a random verdict, or resolves a
// claim. It resets calm if it answered one.
func (h *history) answerBadly(calm *int) bool {
	if h.disturbClaim() || h.answerOne(is[*effect.Resolve]) || h.answerOne(is[*effect.Load]) || h.disturbAdopt() {
		*calm = 0
		return true
	}
	return false
}

// otherDispatcher is the id of the dispatcher that claims rows of this one.
const otherDispatcher = 1

// pass advances both clocks.
func (h *history) pass(ms int64) {
	h.now += timing.Instant(ms)
	h.table.now += ms * 1000
	h.feed(Tick{})
}

// disturbClaim answers a claim with a random verdict.
func (h *history) disturbClaim() bool {
	i := slices.IndexFunc(h.queue, is[*effect.Claim])
	if i < 0 {
		return false
	}
	req := h.queue[i].(*effect.Claim).Request
	switch h.rng.IntN(4) {
	case 0:
		r := h.table.Row(req.IDs[h.rng.IntN(len(req.IDs))])
		if r.Status == dispatcherd.Pending {
			h.table.steal(otherDispatcher, r, h.fingerprintOf(dispatcherd.SessionID(10_000+r.ID)))
			h.note("stolen %d", r.ID)
		}
	case 1:
		h.note("refused %v", req.IDs)
		h.queue = slices.Delete(h.queue, i, i+1)
		h.feed(Claimed{Request: req, Result: contract.ClaimResult{Verdict: contract.Refused}})
		return true
	case 2:
		if h.rng.IntN(2) == 0 {
			h.table.claim(h.me, req)
		}
		h.note("unknown %v", req.IDs)
		h.queue = slices.Delete(h.queue, i, i+1)
		h.feed(Claimed{Request: req, Result: contract.ClaimResult{Verdict: contract.Unknown}})
		return true
	}
	return h.answerOne(is[*effect.Claim])
}

func (h *history) feed(ev Event) {
	if h.hold {
		ev = Together{Events: []Event{ev}, Hold: true}
	}
	h.core.backlog.SetSlow(h.slow) // so that decisions do not depend on the measured time
	for _, e := range kept(h.core.Step(h.now, ev, nil)) {
		switch e := e.(type) {
		case *effect.Send:
			h.running = append(h.running, e)
			h.placed = append(h.placed, placement{e.Job, e.Slot})
		case *effect.Resume:
			h.resumed(e)
		case *effect.Fetch, *effect.Claim, *effect.Resolve, *effect.Load, *effect.Adopt, *effect.Finish, *effect.SetGate:
			h.queue = append(h.queue, e)
		}
	}
	if h.seed%8 == 0 {
		require.NoError(h.t, h.core.Check())
	}
}

func (h *history) answerOne(is func(effect.Effect) bool) bool {
	i := slices.IndexFunc(h.queue, is)
	if i < 0 {
		return false
	}
	e := h.queue[i]
	h.queue = slices.Delete(h.queue, i, i+1)
	switch e := e.(type) {
	case *effect.Fetch:
		h.feed(Fetched{Request: e.Request, Result: h.table.fetch(e.Request)})
	case *effect.Claim:
		h.feed(Claimed{Request: e.Request, Result: h.table.claim(h.me, e.Request)})
	case *effect.Resolve:
		h.feed(Claimed{Request: e.Request, Result: h.table.resolve(h.me, e.Request)})
	case *effect.Load:
		h.feed(Loaded{Result: h.table.load(h.me, e.Request)})
	case *effect.Finish:
		h.feed(Finished{Request: e.Request, Result: h.table.finish(h.me, e.Request)})
	case *effect.Adopt:
		h.feed(Adopted{Request: e.Request, Result: h.table.adopt(h.me, e.Request)})
	case *effect.SetGate:
		h.feed(GateSet{Subscribed: e.Subscribed})
	}
	return true
}

// The decisions of the core, with its index, lanes, fetch limits and claim
// batches, equal the decisions of a reference that scores every pair of job
// and slot.
func TestCoreDecidesLikeTheReference(t *testing.T) {
	histories := 50_000
	if raceEnabled {
		histories = 300
	} else if testing.Short() {
		histories = 3_000
	}
	const shares = 4 // the shares run in parallel
	for share := range shares {
		t.Run(fmt.Sprintf("share %d of %d", share+1, shares), func(t *testing.T) {
			t.Parallel()
			var adopted, handovers, helped int
			for seed := share; seed < histories; seed += shares {
				h := newHistory(t, uint64(seed))
				h.run()
				adopted, handovers, helped = adopted+h.adopted, handovers+h.handovers, helped+h.helped
			}
			require.Positive(t, adopted, "some execution must be adopted")
			require.Positive(t, handovers, "some dispatcher must hand over its jobs")
			if share%2 == 0 { // other shares of the test have no histories with several dispatchers
				require.Positive(t, helped, "some row of another share must be placed")
			}
		})
	}
}

// run performs twelve random steps.
func (h *history) run() {
	for range 12 {
		h.now += timing.Instant(h.pause(60_000))
		h.table.now += int64(h.now)*1000 - (h.table.now - 1_000_000_000_000)
		// Rows with a run_at in the past are found by the next full scan.
		h.backdate = h.rng.IntN(3) == 0
		if h.backdate {
			h.core.backlog.PollNow()
		}
		if h.backdate {
			h.releaseDetached()
			h.recordEnds()
		}
		switch k := h.rng.IntN(6); {
		case k == 5 && h.rng.IntN(3) == 0 && !h.core.claims.breaker.Failed():
			h.restart()
		case k == 0:
			h.disturbedStep(h.randomEvents()...)
		case k < 3 && h.wide && !h.core.claims.breaker.Failed():
			h.compareMidRun()
		default:
			var events []Event
			if h.shared && h.rng.IntN(2) == 0 {
				events = append(events, h.randomClusterCapacity())
			}
			if h.rng.IntN(4) == 0 {
				events = append(events, h.randomControls())
			}
			h.step(append(events, h.randomEvents()...)...)
		}
		h.recordEnds()
		require.NoError(h.t, h.core.Check())
	}
}

// recordEnds answers the finishes and adds the rows that became pending again
// to the reference.
func (h *history) recordEnds() {
	h.hold = true
	for h.answerOne(is[*effect.Finish]) || h.answerOne(is[*effect.Fetch]) {
	}
	h.hold = false
	for _, r := range h.table.Rows() {
		if r.Status == dispatcherd.Pending && h.reference.waiting[r.ID] == nil {
			h.reference.waiting[r.ID] = &referenceJob{id: r.ID, typ: r.Type, priority: r.Priority, since: floorMS(r.RunAt)}
		}
	}
}

func (h *history) randomEvents() []Event {
	var events []Event
	for range 1 + h.rng.IntN(5) {
		if ev := h.randomEvent(); ev != nil {
			events = append(events, ev)
		}
	}
	return events
}

func (h *history) randomEvent() Event {
	switch k := h.rng.IntN(11); {
	case k == 10:
		return h.randomResumeOffer()
	case k < 2 || len(h.sessions) == 0:
		return h.randomRegistration()
	case k < 5:
		h.randomInsert()
		return nil
	case k < 6:
		return h.randomRequest()
	case k < 9 && len(h.running) > 0:
		return h.randomRelease()
	case k < 9:
		return nil
	}
	return h.randomDisconnect()
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) randomRegistration() Event {
	if len(h.sessions) == 0 || h.rng.IntN(2) == 0 {
		h.nextSess++
		h.sessions = append(h.sessions, h.nextSess)
	}
	s := h.sessions[h.rng.IntN(len(h.sessions))]
	ev := Registered{Session: s, Worker: workerOf(s), Fingerprint: h.fingerprintOf(s)}
	for range 1 + h.rng.IntN(3) {
		types := slices.Clone(referenceTypes)
		h.rng.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
		types = types[:1+h.rng.IntN(len(types))]
		slices.Sort(types)
		ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: h.nextSlot, Number: h.numbers[s], Types: types})
		h.reference.slots[h.nextSlot] = &referenceSlot{id: h.nextSlot, types: types, draining: h.reference.drained[s]}
		h.owner[h.nextSlot], h.number[h.nextSlot] = s, h.numbers[s]
		h.nextSlot++
		h.numbers[s]++
	}
	h.note("register %v", ev)
	return ev
}

func (h *history) randomInsert() {
	for range 1 + h.rng.IntN(5) {
		h.nextJob++
		r := claimfake.Row{
			ID: h.nextJob, Type: referenceTypes[h.rng.IntN(len(referenceTypes))],
			Priority: dispatcherd.Priority(h.rng.IntN(3) * h.rng.IntN(6)),
			RunAt:    h.table.now, MaxAttempts: 5,
		}
		if h.laneFull(r.Type, r.Priority) {
			continue
		}
		if h.backdate {
			r.RunAt -= certain(int64(h.rng.IntN(400_000))) * 1000
		}
		h.table.insert(r)
		h.reference.waiting[r.ID] = &referenceJob{id: r.ID, typ: r.Type, priority: r.Priority, since: floorMS(r.RunAt)}
		h.note("insert %d %s prio %d run_at %d", r.ID, r.Type, r.Priority, r.RunAt)
	}
}

func (h *history) randomRequest() Event {
	ev := Requested{
		Job:      h.drawRequest(),
		Type:     referenceTypes[h.rng.IntN(len(referenceTypes))],
		Priority: dispatcherd.Priority(h.rng.IntN(11)),
		Wait:     true,
	}
	if h.rng.IntN(3) == 0 {
		ev.Session = h.sessionFor(ev.Type)
	}
	h.reference.waiting[ev.Job] = &referenceJob{id: ev.Job, typ: ev.Type, priority: ev.Priority, since: int64(h.now), pin: ev.Session}
	h.note("request %v", ev)
	return ev
}

// sessionFor returns the session that offers a type and has the smallest id, or 0.
func (h *history) sessionFor(typ string) (first dispatcherd.SessionID) {
	for id, s := range h.reference.slots {
		if owner := h.owner[id]; !s.draining && slices.Contains(s.types, typ) && (first == 0 || owner < first) {
			first = owner
		}
	}
	return first
}

// referenceOf returns what the reference knows of a request in hand.
func (h *history) referenceOf(j *job) *referenceJob {
	r := &referenceJob{id: j.id, typ: h.core.index.Name(j.Type), priority: j.Priority, since: int64(j.request.arrival)}
	if j.request.pin != nil {
		r.pin = j.request.pin.id
	}
	return r
}

// drawRequest returns the id of a new request. Some ids are not used in
// ascending order.
func (h *history) drawRequest() dispatcherd.JobID {
	if id := h.skipped; id != 0 && h.rng.IntN(2) == 0 {
		h.skipped = 0
		return id
	}
	h.nextReq--
	if h.skipped == 0 && h.rng.IntN(3) == 0 {
		h.skipped = h.nextReq
		h.nextReq--
	}
	return h.nextReq
}

func (h *history) randomRelease() Event {
	i := h.rng.IntN(len(h.running))
	e := h.running[i]
	h.running = slices.Delete(h.running, i, i+1)
	h.reference.slots[e.Slot].busy = false
	ok := h.rng.IntN(3) > 0
	h.note("release %d from slot %d ok=%t", e.Job, e.Slot, ok)
	return Released{Session: e.Session, Results: []Result{{Job: e.Job, Attempt: e.Attempt, OK: ok}}}
}

func (h *history) randomDisconnect() Event {
	i := h.rng.IntN(len(h.sessions))
	s := h.sessions[i]
	h.sessions = slices.Delete(h.sessions, i, i+1)
	for id, owner := range h.owner {
		if owner == s {
			delete(h.reference.slots, id)
			delete(h.owner, id)
		}
	}
	h.running = slices.DeleteFunc(h.running, func(e *effect.Send) bool {
		if e.Session != s {
			return false
		}
		if j := h.core.jobs[e.Job]; e.Job < 0 && j.request.pin == nil && int(j.crashes)+1 < h.core.cfg.Limits.Crashes {
			h.reference.waiting[e.Job] = h.referenceOf(j)
		}
		return true
	})
	maps.DeleteFunc(h.reference.waiting, func(_ dispatcherd.JobID, j *referenceJob) bool { return j.pin == s })
	h.note("death of session %d", s)
	return Unregistered{Session: s}
}
