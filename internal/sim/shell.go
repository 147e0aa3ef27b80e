package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

func (h *host) sendFrame(session dispatcherd.SessionID, f frame) {
	if session == 0 {
		return // the worker of the execution has not reconnected
	}
	c := h.world.conns[session-1]
	switch {
	case c.hostEnd.closed || c.hostIncarnation != h.incarnation || c.hangUpFor != 0:
	case c.handshaking:
		c.afterWelcome = append(c.afterWelcome, f)
	default:
		h.world.write(c, &c.down, f)
	}
}

// maxRemovable is the number of removable claims that single-row claims leave
// to later ones. It is smaller than in package claim, so that removal occurs
// often.
const maxRemovable = 8

func (h *host) submitClaim(o op, r *contract.ClaimRequest) {
	w := h.world
	i, s := w.statement(o, h)
	s.claim = r
	s.ids = append(s.ids, r.IDs...)
	s.to = append(s.to, r.Sessions...)
	s.token = readToken(r.Token)
	if o == opClaim {
		s.uncontended = h.contention == 0
		if len(s.ids) > 1 || len(h.claimRecords.removable) >= maxRemovable {
			s.removable = append(s.removable, h.claimRecords.removable...)
			h.claimRecords.removable = h.claimRecords.removable[:0]
		}
	}
	h.submit(i, s)
}

func readToken(t contract.Token) (v uint64) {
	for i, b := range t {
		v ^= uint64(b) << (i % 8 * 8)
	}
	return v
}

func (h *host) submitFinish(r *contract.FinishRequest) {
	w := h.world
	i, s := w.statement(opFinish, h)
	s.finish, s.again = r, r.Again
	for n := range r.Items {
		f := &r.Items[n]
		if w.opt.Break == WithoutRelease && f.Outcome == contract.Crashed {
			continue
		}
		s.items = append(s.items, *f)
	}
	h.submit(i, s)
}

// heartbeat sends a heartbeat.
func (h *host) heartbeat() {
	h.heartbeats++ // one that is planned is void
	h.beating, h.adopted = true, false
	i, s := h.world.statement(opHeartbeat, h)
	for name, n := range h.lease.BeginHeartbeat(h.time(), h.core) { // order-free: one element for each type
		s.capacity[typeNumber(name)] = int32(n)
	}
	h.submit(i, s)
}

// heartbeatDone handles the answer to a heartbeat.
func (h *host) heartbeatDone(s *statement) {
	if s.verdict == contract.OK {
		s.result.Cancels = slices.Clone(s.result.Cancels)
		h.deliver(h.lease.HeartbeatAnswered(h.time(), s.result.HeartbeatResult)...)
		if s.result.LeaseLost {
			h.world.stats.Rejoined++
			h.submit(h.world.statement(opJoin, h))
			return
		}
	}
	h.planHeartbeat()
}

// planHeartbeat plans the next heartbeat after one or a Join has ended.
func (h *host) planHeartbeat() {
	h.beating = false
	if h.adopted {
		h.heartbeat()
		return
	}
	h.plan(hostHeartbeat, h.world.now+moment(h.lease.Pause().Microseconds()), h.heartbeats)
}

// guard checks whether the lease can still be proved.
func (h *host) guard() {
	h.deliver(h.lease.Guard(h.time()))
	h.plan(hostGuard, h.world.now+moment(shell.GuardInterval(h.world.scale.lease.duration()).Microseconds()), 0)
}

func typeNumber(name string) int { return int(name[len(name)-1] - '0') }

// claimRecords remember the claim of each job, as package claim does. A claim's
// row is removable when none of its jobs runs.
type claimRecords struct {
	byJob     []int32 // by job id - 1: position in records plus one
	records   []claimRecord
	removable []uint64
}

type claimRecord struct {
	token   uint64
	running int32
}

func (m *claimRecords) reset() {
	m.byJob, m.records, m.removable = m.byJob[:0], m.records[:0], m.removable[:0]
}

func (m *claimRecords) add(token uint64, won []contract.Won) {
	if len(won) == 0 {
		m.removable = append(m.removable, token)
		return
	}
	known := slices.IndexFunc(m.records, func(k claimRecord) bool { return k.token == token && k.running > 0 })
	for i := range won {
		if id := won[i].ID; known < 0 || int(id) > len(m.byJob) || m.byJob[id-1] != int32(known+1) {
			m.remove(id)
		}
	}
	if known >= 0 {
		return // the claim was answered and also resolved
	}
	at := slices.IndexFunc(m.records, func(k claimRecord) bool { return k.token == token })
	if at < 0 {
		if at = slices.IndexFunc(m.records, func(k claimRecord) bool { return k.running == 0 }); at < 0 {
			at = len(m.records)
			m.records = append(m.records, claimRecord{})
		}
		m.records[at] = claimRecord{token: token}
	}
	m.records[at].running += int32(len(won))
	for i := range won {
		for int(won[i].ID) > len(m.byJob) {
			m.byJob = append(m.byJob, 0)
		}
		m.byJob[won[i].ID-1] = int32(at + 1)
	}
}

func (m *claimRecords) remove(id dispatcherd.JobID) {
	if int(id) > len(m.byJob) || m.byJob[id-1] == 0 {
		return
	}
	k := &m.records[m.byJob[id-1]-1]
	m.byJob[id-1] = 0
	if k.running--; k.running == 0 {
		m.removable = append(m.removable, k.token)
	}
}

// Arguments of hostNotification, besides the id of a job to cancel.
const (
	rowsInserted     = 0
	listenerLost     = -1 // the connection of the listener broke
	listenerRestored = -2 // the listener has reconnected
	rowInserted      = -3 // row 1 alone became pending; the next lower number is row 2, and so on
)

// notify sends a notification without a row to every listening dispatcher.
func (w *world) notify() { w.notifyRow(rowsInserted) }

// notifyRow sends a notification to every listening dispatcher.
func (w *world) notifyRow(notification int32) {
	w.stats.Notified++
	for _, h := range w.hosts {
		if !h.up || h.core == nil || w.table.cut {
			continue
		}
		at := w.now + w.random.span(50, 500)
		if w.opt.Break == WithoutPoll && w.random.below(10) > 0 {
			continue
		}
		if w.has(Notify) {
			switch w.random.below(8) {
			case 0, 1:
				w.stats.LostNotifications++
				continue
			case 2:
				at += w.random.span(0, second)
			case 3:
				h.plan(hostNotification, at+w.random.span(0, second/10), notification)
			}
		}
		h.plan(hostNotification, at, notification)
	}
}

func (h *host) notified(notification int32) {
	w := h.world
	switch {
	case notification == rowsInserted:
		h.deliver(shell.JobsNotified(nil))
	case notification <= rowInserted:
		id := dispatcherd.JobID(rowInserted - notification + 1)
		r := w.table.row(id) // as inserted; its current status does not matter
		h.deliver(shell.JobsNotified(&contract.RowNotification{
			Type: w.typeNames[r.typ], Priority: r.priority, Key: contract.Key{RunAt: r.insertedRunAt, ID: id},
		}))
	case notification == listenerLost:
		h.deliver(shell.ListenerState(false))
		h.plan(hostNotification, w.now+w.random.span(second/10, 2*second), listenerRestored)
	case notification == listenerRestored:
		h.deliver(shell.ListenerState(true))
	default:
		h.deliver(shell.CancelNotified(dispatcherd.JobID(notification)))
	}
}
