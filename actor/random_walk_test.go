package actor

import (
	"math/rand/v2"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// randomWalk is an endless random history of a core. Workers connect and
// disconnect, and jobs and requests arrive. Statements are answered at once or
// late, with any verdict. The same seed gives the same history.
type randomWalk struct {
	rng      *rand.Rand
	core     *Core
	audit    *auditor // nil if placements are not checked
	watch    func(Event, []effect.Effect)
	now      timing.Instant
	nextJob  dispatcherd.JobID
	nextReq  dispatcherd.JobID
	nextSlot dispatcherd.SlotID
	nextSess dispatcherd.SessionID
	sessions []walkSession
	running  []*effect.Send
	queue    []effect.Effect // statements in flight
	pending  map[walkLane][]contract.Key
	lanes    map[dispatcherd.JobID]walkLane // row ids
	taken    map[contract.Token][]dispatcherd.JobID
	detached []detachedJob // executions that may be resumed
	began    map[dispatcherd.JobID]contract.Fingerprint
	offered  map[dispatcherd.SlotID]dispatcherd.Slot
	turns    int
	deaths   int

	adopted, handovers int
}

type walkLane struct {
	typ      string
	priority dispatcherd.Priority
}

type walkSession struct {
	id    dispatcherd.SessionID
	next  int32
	slots []dispatcherd.Slot
}

var walkTypes = []string{"csv", "excel", "index", "mail", "ocr", "pdf"}

func newRandomWalk(seed uint64, audit *auditor) *randomWalk {
	cfg := DefaultConfig()
	cfg.Seed = [2]uint64{seed, 2}
	cfg.Limits.ClaimBatch, cfg.Limits.Claims, cfg.LaneLength = 5, 2, 6
	cfg.RetryStatement = timing.Backoff{Base: msDuration(1), Max: msDuration(50)}
	cfg.Retry = timing.Backoff{Base: msDuration(1), Max: msDuration(100)}
	return &randomWalk{
		rng: rand.New(rand.NewPCG(seed, 3)), core: New(cfg), audit: audit,
		pending: map[walkLane][]contract.Key{}, lanes: map[dispatcherd.JobID]walkLane{},
		taken: map[contract.Token][]dispatcherd.JobID{},
		began: map[dispatcherd.JobID]contract.Fingerprint{}, offered: map[dispatcherd.SlotID]dispatcherd.Slot{},
	}
}

// turn performs one random action and answers some statements.
func (w *randomWalk) turn() {
	w.now += timing.Instant(w.rng.IntN(20))
	w.turns++
	k := w.rng.IntN(100)
	if calm := w.turns/500%2 == 0; calm && k >= 50 && w.rng.IntN(2) == 0 {
		k = 10 // so that fewer jobs arrive than end
	}
	slots := w.core.index.Len()
	switch {
	case w.turns%2_000 == 0:
		w.handOver()
	case k == 7 && slots < 24:
		w.offerResume()
	case slots < 4 || slots < 24 && k < 3:
		w.register()
	case k < 4 && len(w.sessions) > 1:
		w.disconnect()
	case k < 6:
		w.withdraw()
	case k == 6 && w.audit == nil && w.rng.IntN(20) == 0:
		w.control()
	case k < 50 && len(w.running) > 0:
		w.release()
	case k < 75:
		w.insert()
	case k < 97 && w.core.quotas.Requests.Held() < 20:
		w.request()
	default:
		w.feed(Tick{})
	}
	for len(w.queue) > 0 && w.rng.IntN(12) > 0 {
		w.answer()
	}
}

func (w *randomWalk) feed(ev Event) {
	if w.turns/700%2 == 1 {
		w.core.backlog.SetSlow(true)
	}
	fx := kept(w.core.Step(w.now, ev, nil))
	if w.watch != nil {
		w.watch(ev, fx)
	}
	for i := range fx {
		switch e := fx[i].(type) {
		case *effect.Send:
			w.running = append(w.running, e)
			w.began[e.Job] = walkFingerprint(e.Session)
		case *effect.Resume:
			w.resumed(e)
		case *effect.Fetch, *effect.Claim, *effect.Resolve, *effect.Adopt, *effect.Finish, *effect.SetGate:
			w.queue = append(w.queue, e)
		}
	}
	if w.audit != nil {
		w.report(fx)
	}
}

// report passes the decisions to the auditor.
func (w *randomWalk) report(fx []effect.Effect) {
	a := w.audit
	reservation := func(id dispatcherd.JobID) dispatcherd.SlotID {
		if j := w.core.jobs[id]; j != nil && j.slot != noSlot && j.state.claimPending() {
			return w.core.index.SlotID(j.slot)
		}
		return noSlotID
	}
	sent := func(id dispatcherd.JobID) bool {
		return slices.ContainsFunc(fx, func(e effect.Effect) bool {
			send, ok := e.(*effect.Send)
			return ok && send.Job == id
		})
	}
	for id, at := range a.reserved { // order-free: only frees slots
		if reservation(id) != at && !sent(id) {
			a.reserve(id, noSlotID)
		}
	}
	for i := range fx {
		switch e := fx[i].(type) {
		case *effect.Send:
			a.sent(e)
		case *effect.Claim:
			for _, id := range e.Request.IDs {
				a.reserve(id, reservation(id))
			}
		}
	}
	for _, j := range w.core.claims.next {
		a.reserve(j.id, reservation(j.id))
	}
	a.judge()
}

func (w *randomWalk) register() {
	if len(w.sessions) == 0 || w.rng.IntN(2) == 0 {
		w.nextSess++
		w.sessions = append(w.sessions, walkSession{id: w.nextSess})
	}
	s := &w.sessions[w.rng.IntN(len(w.sessions))]
	var slots []dispatcherd.Slot
	for range 1 + w.rng.IntN(3) {
		types := slices.Clone(walkTypes)
		w.rng.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
		types = types[:1+w.rng.IntN(4)]
		slices.Sort(types)
		slots = append(slots, dispatcherd.Slot{Types: types})
	}
	w.announce(s, slots)
}

// announce registers slots under new ids.
func (w *randomWalk) announce(s *walkSession, slots []dispatcherd.Slot) {
	for i := range slots {
		slots[i].ID, slots[i].Number = w.nextSlot, s.next
		w.nextSlot++
		s.next++
		if w.audit != nil {
			w.audit.slots = append(w.audit.slots, auditSlot{id: slots[i].ID, session: s.id, number: slots[i].Number, types: slots[i].Types})
		}
	}
	s.slots = append(s.slots, slots...)
	w.feed(Registered{Session: s.id, Worker: "w", Slots: slots, Fingerprint: walkFingerprint(s.id)})
}

// disconnect ends a session. Half of the workers reconnect at once with the
// same slots.
func (w *randomWalk) disconnect() {
	w.deaths++
	i := w.rng.IntN(len(w.sessions))
	s := w.sessions[i]
	w.sessions = slices.Delete(w.sessions, i, i+1)
	w.running = slices.DeleteFunc(w.running, func(e *effect.Send) bool { return e.Session == s.id })
	if w.audit != nil {
		w.audit.gone(s.id)
	}
	w.feed(Unregistered{Session: s.id})
	if w.rng.IntN(2) == 0 && len(s.slots) > 0 {
		w.nextSess++
		w.sessions = append(w.sessions, walkSession{id: w.nextSess})
		w.announce(&w.sessions[len(w.sessions)-1], slices.Clone(s.slots))
	}
}

// withdraw withdraws one slot from the core and from the record.
func (w *randomWalk) withdraw() {
	if len(w.sessions) == 0 {
		return
	}
	s := &w.sessions[w.rng.IntN(len(w.sessions))]
	if len(s.slots) == 0 {
		return
	}
	i := w.rng.IntN(len(s.slots))
	slot := s.slots[i]
	s.slots = slices.Delete(s.slots, i, i+1)
	if w.audit != nil {
		w.audit.slot(slot.ID).draining = true
	}
	w.feed(Withdrew{Session: s.id, Numbers: []int32{slot.Number}})
}

func (w *randomWalk) release() {
	i := w.rng.IntN(len(w.running))
	e := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	if w.audit != nil {
		w.audit.released(e.Slot)
	}
	ok := e.Job < 0 || w.rng.IntN(20) > 0
	w.feed(Released{Session: e.Session, Results: []Result{{Job: e.Job, Attempt: e.Attempt, OK: ok}}})
}

func (w *randomWalk) insert() {
	waiting := 0
	for _, typ := range walkTypes {
		for p := range dispatcherd.MaxPriority + 1 {
			waiting += len(w.pending[walkLane{typ, p}])
		}
	}
	if waiting > 30 {
		w.feed(Tick{})
		return
	}
	w.nextJob++
	lane := walkLane{walkTypes[w.rng.IntN(len(walkTypes))], dispatcherd.Priority(w.rng.IntN(11))}
	w.lanes[w.nextJob] = lane
	w.known(w.nextJob, lane.typ)
	key := contract.Key{RunAt: int64(w.now) * 1000, ID: w.nextJob}
	w.makePending(key)
	if w.nextJob%2 == 0 {
		row := contract.RowNotification{Type: lane.typ, Priority: lane.priority, Key: key}
		if w.nextJob%4 == 0 {
			w.feed(Admitted{Rows: []contract.RowNotification{row}})
		} else {
			w.feed(Announced{Row: row})
		}
		return
	}
	w.feed(Notified{})
}

func (w *randomWalk) known(id dispatcherd.JobID, typ string) {
	if w.audit != nil {
		w.audit.types[id] = typ
	}
}

func (w *randomWalk) request() {
	w.nextReq--
	typ := walkTypes[w.rng.IntN(len(walkTypes))]
	w.known(w.nextReq, typ)
	ev := Requested{Job: w.nextReq, Type: typ, Priority: dispatcherd.Priority(w.rng.IntN(11)), Wait: true}
	if w.audit == nil && len(w.sessions) > 0 && w.rng.IntN(3) == 0 {
		ev.Session = w.sessions[w.rng.IntN(len(w.sessions))].id
	}
	w.feed(ev)
}

// makePending makes a row pending.
func (w *randomWalk) makePending(k contract.Key) {
	lane := w.lanes[k.ID]
	i, _ := slices.BinarySearchFunc(w.pending[lane], k, contract.Key.Compare)
	w.pending[lane] = slices.Insert(w.pending[lane], i, k)
}

// take makes a row running if it is pending and due.
func (w *randomWalk) take(id dispatcherd.JobID) bool {
	lane := w.lanes[id]
	i := slices.IndexFunc(w.pending[lane], func(k contract.Key) bool { return k.ID == id && k.RunAt <= int64(w.now)*1000 })
	if i >= 0 {
		w.pending[lane] = slices.Delete(w.pending[lane], i, i+1)
	}
	return i >= 0
}

// answer answers the oldest statement, sometimes with an error.
func (w *randomWalk) answer() {
	next := w.queue[0]
	w.queue = slices.Delete(w.queue, 0, 1)
	v := contract.OK
	if w.rng.IntN(40) == 0 {
		v = contract.Refused
	}
	switch e := next.(type) {
	case *effect.Fetch:
		w.feed(Fetched{Request: e.Request, Result: w.fetch(e.Request, v)})
	case *effect.Claim:
		w.claim(e.Request, v)
	case *effect.Resolve:
		w.won(e.Request, v)
	case *effect.Finish:
		w.finish(e, v)
	case *effect.Adopt:
		w.adopt(e, v)
	case *effect.SetGate:
		w.feed(GateSet{Subscribed: e.Subscribed, Verdict: v})
	}
}

func (w *randomWalk) fetch(req *contract.FetchRequest, v contract.Verdict) contract.FetchResult {
	res := contract.FetchResult{Verdict: v, DBNow: int64(w.now) * 1000}
	if v != contract.OK {
		return res
	}
	for i, lane := range req.Lanes {
		n := 0
		for _, k := range w.pending[walkLane{lane.Type, lane.Priority}] {
			if lane.After.Less(k) && n < lane.Limit && (!req.Backfill || k.Less(lane.Before)) {
				res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: k})
				n++
			}
		}
	}
	return res
}

// claim makes rows running. Sometimes another dispatcher takes one first, or
// the answer is lost.
func (w *randomWalk) claim(req *contract.ClaimRequest, v contract.Verdict) {
	unknown := w.rng.IntN(40) == 0
	if unknown {
		v = contract.Unknown
	}
	if v == contract.OK || unknown && w.rng.IntN(2) == 0 {
		for _, id := range req.IDs {
			switch taken := w.take(id); {
			case taken && w.rng.IntN(30) > 0:
				w.taken[req.Token] = append(w.taken[req.Token], id)
			case taken:
				w.detached = append(w.detached, detachedJob{id, 1, walkFingerprint(dispatcherd.SessionID(1_000_000 + id))})
			}
		}
	}
	w.won(req, v)
}

func (w *randomWalk) won(req *contract.ClaimRequest, v contract.Verdict) {
	res := contract.ClaimResult{Verdict: v}
	if v == contract.OK {
		for _, id := range w.taken[req.Token] {
			lane := w.lanes[id]
			res.Won = append(res.Won, contract.Won{ID: id, Type: lane.typ, Priority: lane.priority, Attempt: 1, MaxAttempts: 3})
		}
		delete(w.taken, req.Token)
	}
	w.feed(Claimed{Request: req, Result: res})
}

func (w *randomWalk) finish(e *effect.Finish, v contract.Verdict) {
	if v == contract.OK {
		for _, f := range e.Request.Items {
			switch {
			case f.Outcome.Final():
				delete(w.lanes, f.ID)
				delete(w.began, f.ID)
			case f.Outcome == contract.Retry:
				w.makePending(contract.Key{RunAt: int64(w.now)*1000 + f.Delay.Microseconds(), ID: f.ID})
			default:
				w.makePending(contract.Key{RunAt: int64(w.now) * 1000, ID: f.ID})
			}
		}
	}
	w.feed(Finished{Request: e.Request, Result: contract.FinishResult{Verdict: v}})
}
