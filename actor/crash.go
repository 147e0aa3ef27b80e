package actor

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// maxIsolated bounds how often a job is retried in isolation. After that many
// retries the job is quarantined, even if there are other suspects.
const maxIsolated = 10

// workerLost handles a job whose session has ended. If the claim of the job is not sent
// yet, its row returns to its lane. If the claim is in flight and wins the row, the
// row is released. If the worker had withdrawn the slot before, the end of the
// session is not a crash. If the worker may continue the job, all of this is decided
// when it has had the time to resume the job.
func (c *Core) workerLost(j *job, end *sessionEnd, withdrawn bool) {
	faultless := end.disconnected || j.stop == leaseLost
	switch {
	case j.state == stateReserved:
		c.unreserve(j)
	case j.state.claimPending():
		c.move(j, onSlotLost)
	case end.mayContinue(j):
		c.part(j, end, withdrawn)
	case j.mode == dispatcherd.OnDemand:
		c.requestWorkerLost(j, faultless || withdrawn)
	case c.leaving && !faultless && j.stop != cancelled && !end.session.notResumable:
		c.leave(j)
	case j.stop != cancelled && (faultless || withdrawn || c.leaving):
		c.end(j, contract.Finish{Outcome: contract.Released})
	default:
		c.crashed(j, end.suspects)
	}
}

// requestWorkerLost returns a request to its place in the queue. A request that has
// crashed too many workers, or that is pinned, is answered instead.
func (c *Core) requestWorkerLost(j *job, faultless bool) {
	if faultless && j.state != stateAbandoned && !c.draining && j.request.pin == nil {
		c.requeue(j)
		return
	}
	j.crashes++
	c.stats.Crashed++
	switch {
	case j.state == stateAbandoned, j.request.pin != nil:
		c.answer(j, effect.AnswerFailed, nil, "the worker died or disconnected while it ran the request")
	case int(j.crashes) >= c.cfg.Limits.Crashes:
		c.answer(j, effect.AnswerFailed, nil, fmt.Sprintf("%d workers died while they ran it", j.crashes))
	case c.draining:
		c.answer(j, effect.AnswerStopping, nil, "the worker died and the dispatcher is about to stop")
	default:
		c.requeue(j)
	}
}

// crashed counts the death of a worker as a crash of one of its jobs. All jobs of
// the worker are treated alike. A suspect is a job that one more crash would
// quarantine. If the job is the only suspect of the worker, the job is quarantined.
// If there are several suspects, each is retried in isolation after its own growing
// delay, so that they rarely run at the same time again. After maxIsolated crashes
// in isolation the job is quarantined in any case.
func (c *Core) crashed(j *job, suspects int) {
	f := contract.Finish{Outcome: contract.Crashed, Error: "the worker died while it ran the job"}
	switch {
	case j.stop == cancelled:
		c.stats.Crashed++
		f = contract.Finish{Outcome: contract.Cancelled}
	case !c.isSuspect(j):
	case suspects > 1 && int(j.crashes)+1 < c.cfg.Limits.Crashes+maxIsolated:
		f.Outcome, f.Delay = contract.Isolated, c.cfg.Retry.Delay(int(j.crashes), c.rng)
		f.Error = fmt.Sprintf(
			"the worker died while it ran this job and %d more that may have caused the crash: the job is retried in isolation", suspects-1)
	default:
		f.Outcome, f.Error = contract.Quarantined, fmt.Sprintf("quarantined: %d workers died while they ran it", j.crashes+1)
	}
	c.end(j, f)
}

// countCrash counts a crash when it is recorded. If it is stale, the worker has resumed the job at another dispatcher.
func (c *Core) countCrash(o contract.Outcome) {
	if o == contract.Crashed || o == contract.Isolated || o == contract.Quarantined {
		c.stats.Crashed++
	}
}

// suspects counts the jobs of a dead worker that one more crash would quarantine.
// If there are several, the death of the worker does not show which of them caused
// it.
func (c *Core) suspects(refs []slotindex.Ref) (n int) {
	for _, ref := range refs {
		if j := c.slots[ref].job; j != nil && j.state.executing() && j.stop < leaseLost && c.isSuspect(j) {
			n++
		}
	}
	return n
}
