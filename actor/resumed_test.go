package actor

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// This file adds other dispatchers to histories: shares of the rows, adoptions,
// and restarts after which the next dispatcher resumes the executions.

// laneRows is the largest number of rows in one lane of a history with shares,
// so that one scan of a non-local lane returns all rows without reaching its
// limit.
const laneRows = backlog.NonLocalLength - 1

// nonLocal reports whether a row belongs to another dispatcher's share.
func (ref *reference) nonLocal(j *referenceJob) bool {
	return j.id > 0 && !ref.shares[j.typ].Owns(j.id)
}

// penalty returns the penalty of a job in milliseconds.
func (ref *reference) penalty(j *referenceJob) int64 {
	if ref.nonLocal(j) {
		return scoring.Penalty.Milliseconds()
	}
	return 0
}

// due reports whether a job can be placed. A row can be placed when it is due, a
// non-local row only after its owner had time to take it. After a non-local row was
// preempted, it cannot be placed here before the next scan.
func (ref *reference) due(j *referenceJob, dbNow int64) bool {
	if ref.isPaused(j) {
		return false
	}
	if ref.nonLocal(j) {
		return !j.preempted && j.since <= dbNow-backlog.OwnerGrace.Milliseconds()
	}
	return j.id < 0 || j.since <= dbNow
}

// pollForHidden starts a full scan before the decision if the history has rows
// that only a scan finds: non-local rows, and rows that were released after an
// adoption.
func (h *history) pollForHidden() {
	if h.shared || h.hasOffers {
		h.pollNow()
	}
}

func (h *history) pollNow() {
	h.core.backlog.PollNow()
	for _, j := range h.reference.waiting {
		j.preempted = false
	}
}

// randomClusterCapacity changes the capacity of the other dispatchers and the
// shares.
func (h *history) randomClusterCapacity() Event {
	ev := ClusterCapacity{Capacity: map[string]int{}, Shares: map[string]contract.Share{}}
	for _, typ := range referenceTypes {
		smaller, larger := h.rng.IntN(4), h.rng.IntN(4)
		if own, _ := h.reference.capacity(typ); smaller+larger > 0 {
			ev.Capacity[typ] = smaller + larger
			if share := contract.ShareOf(own, contract.Others{SmallerIDs: smaller, LargerIDs: larger, Least: 1}); !share.All() {
				ev.Shares[typ] = share
			}
		}
	}
	h.reference.otherSlots, h.reference.shares = ev.Capacity, ev.Shares
	h.note("cluster capacity %v", ev)
	return ev
}

// laneFull reports whether a lane has as many rows as a history with shares may
// have.
func (h *history) laneFull(typ string, p dispatcherd.Priority) bool {
	n := 0
	for _, r := range h.table.Rows() {
		if r.Type == typ && r.Priority == p && !r.Status.Final() {
			n++
		}
	}
	return h.shared && n >= laneRows
}

// remoteRows lists the rows that run under another dispatcher, whether that
// dispatcher is running or stopped.
func (h *history) remoteRows() (rows []*claimfake.Row) {
	for _, r := range h.table.Rows() {
		if r.Status == dispatcherd.Running && int(r.Dispatcher) != h.me {
			rows = append(rows, r)
		}
	}
	return rows
}

// randomResumeOffer connects a worker that offers to resume jobs. The offer is
// correct, or has an earlier attempt, a wrong fingerprint, or a slot that does
// not support the type.
func (h *history) randomResumeOffer() Event {
	rows := h.remoteRows()
	if len(rows) == 0 {
		return h.randomRegistration()
	}
	h.nextSess++
	h.sessions = append(h.sessions, h.nextSess)
	ev := Registered{Session: h.nextSess, Worker: workerOf(h.nextSess), Fingerprint: h.fingerprintOf(h.nextSess)}
	for range min(len(rows), 1+h.rng.IntN(3)) {
		i := h.rng.IntN(len(rows))
		r := rows[i]
		rows = slices.Delete(rows, i, i+1)
		p := ResumeOffer{
			Job:     r.ID,
			Attempt: r.Attempt,
			From:    r.Session,
			Slot:    dispatcherd.Slot{ID: h.nextSlot, Number: h.numbers[h.nextSess]},
		}
		types := map[string]bool{r.Type: true, referenceTypes[h.rng.IntN(len(referenceTypes))]: true}
		p.To = p.From.WithGeneration(int(r.ID) % 3)
		switch h.rng.IntN(10) {
		case 0:
			p.Attempt--
		case 1, 2:
			p.From++
		case 3:
			delete(types, r.Type)
			types["e"] = true
		}
		for typ := range types { // order-free: sorted below
			p.Slot.Types = append(p.Slot.Types, typ)
		}
		slices.Sort(p.Slot.Types)
		h.offered[h.nextSlot] = p.Slot
		h.nextSlot++
		h.numbers[h.nextSess]++
		ev.Offers = append(ev.Offers, p)
	}
	h.hasOffers = true
	h.note("return %v", ev)
	return ev
}

func (h *history) fingerprintOf(s dispatcherd.SessionID) contract.Fingerprint {
	return contract.Fingerprint(1_000_000*int(s) + 1)
}

// resumed continues an adopted execution in the history and in the reference. It
// checks the row in the table.
func (h *history) resumed(e *effect.Resume) {
	slot := h.offered[e.Slot]
	r := h.table.Row(e.Job)
	require.True(h.t, int(r.Dispatcher) == h.me && r.Attempt == e.Attempt && r.Status == dispatcherd.Running,
		"seed %d: job %d continues but belongs to another dispatcher; history:\n%v", h.seed, e.Job, h.log)
	h.running = append(h.running,
		&effect.Send{Session: e.Session, Slot: e.Slot, Number: e.Number, Job: e.Job, Attempt: e.Attempt, Type: r.Type})
	h.reference.slots[e.Slot] = &referenceSlot{id: e.Slot, types: slot.Types, busy: true, draining: h.reference.drained[e.Session]}
	h.owner[e.Slot], h.number[e.Slot] = e.Session, e.Number
	h.adopted++
}

// disturbAdopt answers an adoption with a random verdict. Refused simulates a
// dispatcher without a lease. Unknown simulates a lost answer: the adoption may have
// been executed.
func (h *history) disturbAdopt() bool {
	i := slices.IndexFunc(h.queue, is[*effect.Adopt])
	if i < 0 {
		return false
	}
	v := contract.Refused
	switch h.rng.IntN(4) {
	case 0:
	case 1:
		v = contract.Unknown
		if h.rng.IntN(2) == 0 {
			h.table.adopt(h.me, h.queue[i].(*effect.Adopt).Request)
		}
	default:
		return h.answerOne(is[*effect.Adopt])
	}
	req := h.queue[i].(*effect.Adopt).Request
	h.note("%v adoption %v", v, req.Jobs)
	h.queue = slices.Delete(h.queue, i, i+1)
	h.feed(Adopted{Request: req, Result: contract.AdoptResult{Verdict: v}})
	return true
}

// restart stops the dispatcher regularly and starts a new one. Running rows
// stay running; all other rows are pending or ended.
func (h *history) restart() {
	h.note("restart")
	before := map[dispatcherd.JobID]claimfake.Row{}
	for _, e := range h.running {
		if e.Job > 0 {
			before[e.Job] = *h.table.Row(e.Job)
		}
	}
	h.feed(Drained{})
	h.answerAll()
	h.feed(HandedOver{})
	for _, s := range h.sessions {
		h.feed(Unregistered{Session: s})
	}
	h.answerAll()
	require.True(h.t, h.core.Idle(), "seed %d: jobs are in hand after the hand-over; history:\n%v", h.seed, h.log)
	require.EqualValues(h.t, len(before), h.core.Stats().Left)
	for _, r := range h.table.Rows() {
		if left, ok := before[r.ID]; ok {
			require.Equal(h.t, left, *r, "seed %d: job %d was handed over", h.seed, r.ID)
		} else {
			require.False(h.t, r.Status == dispatcherd.Running && int(r.Dispatcher) == h.me,
				"seed %d: job %d runs under a stopped dispatcher without a worker; history:\n%v", h.seed, r.ID, h.log)
		}
	}
	h.me++
	cfg := h.core.cfg
	cfg.Seed[1] = uint64(h.me)
	h.core = New(cfg)
	h.sessions, h.running, h.queue = nil, nil, nil
	clear(h.reference.slots)
	clear(h.reference.waiting)
	clear(h.owner)
	h.reference.otherSlots, h.reference.shares = nil, nil
	h.reference.paused, h.reference.drained = nil, nil
	h.handovers++
}

func (h *history) answerAll() {
	for h.answerOne(is[*effect.Fetch]) || h.answerOne(is[*effect.SetGate]) || h.answerOne(is[*effect.Claim]) ||
		h.answerOne(is[*effect.Resolve]) || h.answerOne(is[*effect.Adopt]) || h.answerOne(is[*effect.Finish]) {
	}
}

// releaseDetached releases some rows whose worker has not resumed them in time.
func (h *history) releaseDetached() {
	for _, r := range h.remoteRows() {
		if h.rng.IntN(4) == 0 {
			h.table.release(r)
			h.note("not resumed %d", r.ID)
		}
	}
}
