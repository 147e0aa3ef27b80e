package actor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// end ends the attempt of a running job.
func (c *Core) end(j *job, f contract.Finish) {
	c.move(j, onFinish)
	c.recordEnd(j, f)
}

// recordEnd queues the end of an attempt for Postgres. The job is forgotten when
// the end is recorded.
func (c *Core) recordEnd(j *job, f contract.Finish) {
	c.logEnd(j, f.Outcome, 0)
	known := c.types[j.Type].durations
	if f.Outcome == contract.Succeeded && j.sentAt != notSent {
		c.durations.Learn(known, j.Class, int64(c.now-j.sentAt))
	}
	known.End(&j.run, j.Class)
	f.ID, f.Attempt, f.Fence, f.Size = j.id, j.attempt, j.delivery.Fence, len(j.delivery.Payload)+len(f.Result)
	f.Placement, f.Log = c.placement(j, f.Outcome), j.row.log
	if f.Placement != nil {
		f.Placement.Backoff = f.Backoff
	}
	j.delivery.Payload = nil
	if o := c.retaking(j.id); o != nil {
		end := f // otherwise each end would be allocated
		o.end = &end
		c.ends.unrecorded++
		return
	}
	c.ends.add(f)
}

// longWait is the shortest wait whose placement is recorded although the attempt succeeded, and
// placementsPerSecond is how many of these are recorded. The placements of all attempts would
// take a ninth of the rate of no-op jobs.
const (
	longWait            = time.Second
	placementsPerSecond = 1000
)

// mayPlace counts the placement of a success, and reports whether it may be recorded.
func (e *finishQueue) mayPlace(now timing.Instant) bool {
	if now >= e.placedSince.After(time.Second) {
		e.placedSince, e.placed = now, 0
	}
	e.placed++
	return e.placed <= placementsPerSecond
}

// placement describes an attempt that ends now. It is nil if the attempt did not start, if it
// succeeded after a short wait, and if too many others have been recorded in this second.
func (c *Core) placement(j *job, outcome contract.Outcome) *contract.Placement {
	if j.sentAt == notSent {
		return nil
	}
	ran := msDuration(int64(c.now - j.sentAt))
	waited := msDuration(c.dueMS(j)) - ran
	if outcome == contract.Succeeded && (waited < longWait || !c.ends.mayPlace(c.now)) {
		return nil
	}
	return &contract.Placement{
		Worker:    j.worker,
		Slot:      j.slotID,
		Waited:    contract.Seconds(max(0, waited)),
		Ran:       contract.Seconds(ran),
		Permits:   contract.Seconds(j.row.permits),
		WaitedFor: string(j.waitedFor),
		Score:     j.terms.Points().ScoreTerms,
	}
}

func (e *finishQueue) add(f contract.Finish) {
	e.queue = append(e.queue, f)
	e.unrecorded++
}

// flushEnds sends the finishes that may be sent. A finish beside another one has a full batch. As long as one finish takes all
// ends that arrive while the finish before it is in flight, a second one would only divide them into smaller batches, and each
// batch costs Postgres a transaction.
func (c *Core) flushEnds() {
	e := &c.ends
	if e.breaker.Open(c.now) {
		return
	}
	if e.inFlight < c.cfg.Limits.Finishes {
		if r := e.held.take(c.now); r != nil {
			c.sendEnds(r)
		}
	}
	for e.inFlight < c.cfg.Limits.Finishes && len(e.again)+len(e.queue) > 0 {
		switch {
		case len(e.again) > 0:
			c.sendEnds(e.again[0])
			e.again = slices.Delete(e.again, 0, 1)
		case e.inFlight > 0 && len(e.queue) < c.cfg.Limits.FinishBatch:
			return
		default:
			c.sendEnds(e.take(c.cfg.Limits.FinishBatch))
		}
	}
}

func (c *Core) sendEnds(r *contract.FinishRequest) {
	c.ends.inFlight++
	c.emit(&effect.Finish{Request: r})
}

// The bounds of the payloads and results of one finish in bytes. Postgres copies them
// to another table, so a thousand large ones would take longer than the statement
// timeout. Ends up to smallEnd are not counted.
const (
	finishSize = 2 << 20
	smallEnd   = 16 << 10
)

// take removes a batch from the queue. Small ends do not wait for large ones.
func (e *finishQueue) take(limit int) *contract.FinishRequest {
	r := reuse(&e.spare)
	r.Items, r.Again = r.Items[:0], false
	q := e.queue
	next, kept, size := 0, 0, 0
	for ; next < len(q) && len(r.Items) < limit; next++ {
		f := &q[next]
		if f.Size > smallEnd && size > 0 && size+f.Size > finishSize {
			q[kept] = *f
			kept++
			continue
		}
		if f.Size > smallEnd {
			size += f.Size
		}
		r.Items = append(r.Items, *f)
	}
	e.queue = slices.Delete(q, kept, next)
	slices.SortFunc(r.Items, func(a, b contract.Finish) int { return cmp.Compare(a.ID, b.ID) })
	return r
}

func (ev Finished) apply(c *Core) {
	e := &c.ends
	e.inFlight--
	if ev.Result.Verdict != contract.OK {
		e.breaker.Fail(c.now, c.cfg.RetryStatement, c.rng)
		ev.Request.Again = ev.Request.Again || ev.Result.Verdict == contract.Unknown
		e.again = append(e.again, ev.Request)
		return
	}
	e.breaker.Succeed()
	c.finished(ev.Request, &ev.Result)
	if ev.Request == e.held.sent {
		e.held.sent = nil
		return
	}
	clear(ev.Request.Items)
	e.spare = append(e.spare, ev.Request)
}

// finished handles each item of a finish. All lists are sorted.
func (c *Core) finished(r *contract.FinishRequest, res *contract.FinishResult) {
	stale, deferred := res.Stale, res.Deferred
	for i := range r.Items {
		f := &r.Items[i]
		isStale := false
		switch {
		case len(deferred) > 0 && deferred[0].ID == f.ID:
			c.stats.Deferred++
			c.ends.held.hold(f, deferred[0].Reason, r.Again, c.now, c.rng)
			deferred = deferred[1:]
			continue
		case len(stale) > 0 && stale[0] == f.ID:
			stale, isStale = stale[1:], true
		}
		c.ends.unrecorded--
		delete(c.ends.held.why, f.ID)
		if !isStale {
			c.countCrash(f.Outcome)
		} else if r.Again {
			c.ends.late.add(f, c.now)
		}
		c.recorded(f, isStale)
	}
}

// recorded forgets a job whose end is in Postgres, or whose attempt was stale. If
// the row is pending again without a delay, recorded returns it to its lane.
func (c *Core) recorded(f *contract.Finish, stale bool) {
	j := c.jobs[f.ID]
	if j == nil || j.state != stateRecording || j.attempt != f.Attempt {
		return
	}
	switch {
	case stale:
		c.stats.Stale++
		if j.sentTo != 0 {
			c.emit(&effect.Stale{Session: j.sentTo, Job: j.id, Attempt: j.attempt})
		}
	case j.row.returned:
		c.backlog.GivenBack()
	case f.Outcome == contract.Released, f.Outcome == contract.Crashed:
		c.putBack(j)
	case f.Outcome == contract.Retry, f.Outcome == contract.Isolated:
		c.backlog.Departed(j.Lane, j.row.key)
		c.backlog.Delayed(f.Delay)
	default:
		c.backlog.Departed(j.Lane, j.row.key)
	}
	c.move(j, onRecorded)
}

func (ev Released) apply(c *Core) {
	for i := range ev.Results {
		c.endAttempt(ev.Session, &ev.Results[i])
	}
}

// endAttempt ends an attempt according to its worker's report. A report about an
// attempt that is not the current one changes nothing. In article 1 a late release
// has no effect, because the slot is no longer in the map of slots. The Core
// compares attempt numbers instead.
func (c *Core) endAttempt(from dispatcherd.SessionID, r *Result) {
	j := c.jobs[r.Job]
	if !c.isCurrent(j, from, r.Job, r.Attempt) {
		return
	}
	if j.mode == dispatcherd.OnDemand {
		c.endRequest(j, r)
		return
	}
	if !r.OK && !r.Returned && j.stop < timedOut && c.overran(j) {
		c.stats.TimedOut++
		j.stop = timedOut
	}
	c.end(j, c.outcome(j, r))
}

// overran reports whether the timeout of a running job has passed. The worker also
// measures the time, so its report may arrive before the alarm.
func (c *Core) overran(j *job) bool {
	return j.state == stateRunning && j.alarm != 0 && c.now >= j.deadline
}

// failure returns the error of a failed attempt. After a timeout it states the limit,
// then the text of the report.
func (j *job) failure(text string) string {
	if j.stop != timedOut {
		return text
	}
	limit := fmt.Sprintf("timeout: it ran longer than %v", j.timeout)
	if text != "" {
		limit += ": " + text
	}
	return limit
}

// isCurrent reports whether the session of a report executes the attempt in the
// report. If the session does not execute the attempt, isCurrent informs the
// worker.
func (c *Core) isCurrent(j *job, from dispatcherd.SessionID, id dispatcherd.JobID, a dispatcherd.Attempt) bool {
	switch {
	case j == nil || j.attempt != a || !j.state.executing():
		c.stats.Stale++
		c.emit(&effect.Stale{Session: from, Job: id, Attempt: a})
		return false
	case j.sentTo != from:
		c.emit(&effect.NotHeld{Session: from, Job: id, Attempt: a})
		return false
	}
	return true
}

// outcome decides how an attempt of a queued job ends. The decision depends on the
// worker's result.
func (c *Core) outcome(j *job, r *Result) contract.Finish {
	switch {
	case r.OK:
		return contract.Finish{Outcome: contract.Succeeded, Result: r.Value}
	case j.stop == cancelled:
		return contract.Finish{Outcome: contract.Cancelled, Error: r.Error}
	case r.Returned || j.stop == leaseLost:
		j.row.returned = true
		return contract.Finish{Outcome: contract.Released}
	case r.Permanent && j.stop != timedOut || j.row.failures+1 >= c.maxAttempts(j):
		return contract.Finish{Outcome: contract.FailedFinal, Error: j.failure(r.Error)}
	}
	delay, whose := r.RetryAfter, "the worker asked for it"
	if delay <= 0 {
		var p timing.Policy
		p, whose = c.backoff(j)
		delay = p.Delay(int(j.row.failures), c.rng)
	}
	return contract.Finish{Outcome: contract.Retry, Error: j.failure(r.Error), Delay: min(delay, timing.LongestDelay), Backoff: whose}
}

// maxAttempts returns after how many failures a job fails permanently.
func (c *Core) maxAttempts(j *job) int32 {
	return cmp.Or(j.row.maxAttempts, int32(c.controls.Retries[c.index.Name(j.Type)].MaxAttempts), contract.DefaultMaxAttempts)
}

// backoff returns the policy for the wait of a job after a failure, and whose it is.
func (c *Core) backoff(j *job) (p timing.Policy, whose string) {
	name := c.index.Name(j.Type)
	text, of := j.row.backoff, "the job"
	if text == "" {
		text, of = c.controls.Retries[name].Backoff, "type "+name
	}
	if text == "" {
		p, of = c.cfg.Retry.Policy(), "the dispatcher"
	} else {
		p, _ = timing.ParsePolicy(text) // its form is right
	}
	return p, "backoff of " + of + ": " + p.String()
}

// apply passes on reports about attempts that the session executes.
func (ev Reported) apply(c *Core) {
	for i := range ev.Reports {
		r := &ev.Reports[i]
		j := c.jobs[r.Job]
		switch {
		case !c.isCurrent(j, ev.Session, r.Job, r.Attempt):
		case r.Log != "":
			c.keepLog(j, c.sessions[ev.Session], r)
		default:
			c.emit(&effect.Report{Report: *r, Mode: j.mode})
		}
	}
}

// releaseRow ends the attempt of a row that a claim won, but whose job must not
// run.
func (c *Core) releaseRow(j *job) {
	f := contract.Finish{Outcome: contract.Released}
	switch {
	case j.stop == cancelled:
		f.Outcome = contract.Cancelled
	case c.isLate(j):
		f.Outcome, f.Error = contract.Cancelled, contract.DeadlinePassed
	case j.row.unfit != "":
		f.Outcome, f.Error = contract.FailedFinal, j.row.unfit
	}
	c.recordEnd(j, f)
}
