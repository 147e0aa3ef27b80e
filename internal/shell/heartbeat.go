package shell

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// BeginHeartbeat notes that a heartbeat is sent now, and returns it. capacity contains the
// slots by type; see actor.Capacities. A dispatcher that stops publishes no slots, so that
// the others get its share.
func (l *Lease) BeginHeartbeat(now time.Duration, c *actor.Core, capacity map[string]int) contract.HeartbeatRequest {
	if c.Draining() {
		capacity = map[string]int{}
	}
	if l.pending {
		l.silence.Interrupt()
	}
	l.begun, l.idle, l.pending = now, c.Idle(), true
	l.beat++
	return contract.HeartbeatRequest{Capacity: capacity, Beat: l.beat, OldestBeat: l.checked.oldest, Silent: l.lost}
}

// HeartbeatAnswered returns the events for the Core, in order. After a result with
// LeaseLost the dispatcher joins again at once. This is safe. Claims have won no
// rows since the lease was lost. Reports about earlier jobs are stale, because the
// rows contain the old id or a new owner.
func (l *Lease) HeartbeatAnswered(now time.Duration, r contract.HeartbeatResult) []actor.Event {
	l.pending = false
	l.lost = l.silence.Observe(l.begun, now, r.Others)
	if r.LeaseLost {
		l.begun = now
		return l.fence()
	}
	l.checked.note(l.beat, now, l.length)
	events := l.renew()
	if len(r.Unheld) > 0 {
		events = append(events, actor.Notified{})
	}
	events = append(events, actor.ClusterCapacity{Capacity: r.OtherCapacity, Shares: r.Shares})
	return append(events, Cancels(r.Cancels)...)
}

// Cancels returns the requests to cancel jobs as events that concern at most Portion
// jobs each.
func Cancels(jobs []dispatcherd.JobID) (events []actor.Event) {
	for part := range slices.Chunk(jobs, Portion) {
		events = append(events, actor.CancelRequested{Jobs: part})
	}
	return events
}

// Joined returns the events for the Core after a Join that succeeded. After a Join that
// failed, the next heartbeat finds the lease lost again.
func (l *Lease) Joined() []actor.Event {
	l.checked = checkedBeats{}
	return l.renew()
}

// retryHeartbeat is the pause after a heartbeat that failed. It is short, so that the
// lease is renewed soon after an outage.
const retryHeartbeat = 200 * time.Millisecond

// Pause returns the time from the end of a heartbeat to the next one. Because the
// pause starts at the end, slow heartbeats never overlap. While the dispatcher is
// idle, the pause is twice as long if four intervals fit into the lease. The pause ends
// earlier if another dispatcher is lost then.
func (l *Lease) Pause(failed bool) time.Duration {
	pause, least := l.interval, min(l.interval, retryHeartbeat)
	switch {
	case failed:
		return least
	case l.idle && 4*l.interval <= l.length:
		pause *= 2
	}
	return min(pause, max(l.silence.left, least))
}

// TookOver reports whether an adoption took over rows that this dispatcher did not own
// before. After the Core has received the adoption, a heartbeat must follow. This
// heartbeat reads the cancel requests whose notifications only other dispatchers have
// processed.
func TookOver(request *contract.AdoptRequest, result *contract.AdoptResult) bool {
	return len(result.Jobs) > 0 && slices.ContainsFunc(request.Jobs, func(o contract.ResumeOffer) bool { return !o.Renewal })
}
