package backend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Why implements httpapi.Backend. The row contains the job. The Core knows why the job waits
// now. The decision log contains earlier decisions.
func (b *Backend) Why(ctx context.Context, id dispatcherd.JobID) (httpapi.Why, error) {
	if id.OnDemand() {
		return b.whyRequest(id)
	}
	job, err := b.Job(ctx, id)
	if errors.Is(err, ondemand.ErrUnavailable) {
		return b.whyUnread(id)
	}
	if err != nil {
		return httpapi.Why{}, err
	}
	if job.Status == dispatcherd.Waiting {
		return b.whyWaiting(ctx, &job)
	}
	why := b.whyRow(&job)
	why.ReadAt = job.ReadAt
	b.addKeys(ctx, &why, &job)
	why.Owner, why.UniqueKey, why.KeyUntil, why.KeyJob = job.Owner, job.UniqueKey, job.KeyUntil, job.UniqueKeyJob
	why.Cancelled, why.Error = job.Cancelled, job.LastError()
	if why.SetAside == "" {
		why.SetAside = b.Aside(id)
	}
	if job.Status == dispatcherd.Pending {
		b.addUnread(&why, &job)
	}
	if !job.Status.Final() {
		b.addLock(ctx, &why)
	}
	return why, nil
}

// whyUnread explains a job whose row cannot be read. Only jobs in hand are known then.
func (b *Backend) whyUnread(id dispatcherd.JobID) (httpapi.Why, error) {
	x := b.explain(actor.Inquiry{ID: id})
	if !slices.ContainsFunc(x.Reasons, inHand) {
		return httpapi.Why{}, rest.Unavailable.Of("Postgres does not answer; dispatchers claim no job until it does").Retryable()
	}
	why := whyView(&x)
	why.Job, why.Status, why.Stopping = id, dispatcherd.Running, x.Stopping
	b.addDecisions(&why, id, 0)
	return why, nil
}

// addUnread says why Postgres cannot read the lane of a pending row.
func (b *Backend) addUnread(why *httpapi.Why, job *contract.Job) {
	reason := b.Unread(contract.Lane{Type: job.Type, Priority: job.Priority, Class: classOf(job)})
	if reason != "" && why.SetAside == "" {
		why.Reasons, why.Slot = append([]string{string(actor.ReasonSetAside)}, why.Reasons...), 0
		why.SetAside = "its lane cannot be read: " + reason
	}
}

// addLock says which session has locked a row. Without an answer of Postgres it adds
// nothing.
func (b *Backend) addLock(ctx context.Context, why *httpapi.Why) {
	lock, err := about(ctx, b.jobs().Locked, why.Job)
	if err == nil && lock != nil {
		if why.Status == dispatcherd.Pending {
			why.Slot = 0
		}
		why.Reasons = append([]string{httpapi.ReasonRowLocked}, why.Reasons...)
		why.Locked = (*httpapi.RowLock)(lock)
	}
}

// whyBecause explains a row by one reason.
func whyBecause(job *contract.Job, reason string) httpapi.Why {
	return httpapi.Why{
		Job: job.ID, Type: job.Type, Mode: dispatcherd.Queued.String(), Priority: job.Priority, Status: job.Status, Reasons: []string{reason},
	}
}

func (b *Backend) whyRow(job *contract.Job) httpapi.Why {
	id := job.ID
	me, other, reason := int(b.Dispatcher()), job.Dispatcher, httpapi.ReasonOtherDispatcher
	if job.Status == dispatcherd.Pending {
		other, reason = job.AdmittedTo, httpapi.ReasonAdmittedElsewhere
	}
	switch {
	case job.Status.Final():
		why := whyBecause(job, httpapi.ReasonFinal)
		b.addDecisions(&why, id, job.Attempt)
		addPermits(&why, job, job.Placement)
		addRecord(&why, job)
		addOrigin(&why, job, me)
		return why
	case other != nil && *other != me:
		why := whyBecause(job, reason)
		why.Dispatcher, why.DispatcherName = *other, given(job.DispatcherName)
		return why
	}
	x := b.explain(actor.Inquiry{
		ID:       id,
		Type:     job.Type,
		Priority: job.Priority,
		Class:    classOf(job),
		RunAt:    job.RunAt.UnixMicro(),
		Failures: int32(job.Failures),
		Now:      job.ReadAt.UnixMicro(),
	})
	why := whyView(&x)
	b.addDecisions(&why, id, job.Attempt)
	addPermits(&why, job, x.Placed)
	if job.Status == dispatcherd.Pending && why.Placement == nil {
		why.DecisionLog = "" // no placement is expected
	}
	switch {
	case job.Status == dispatcherd.Running && !slices.ContainsFunc(x.Reasons, inHand):
		why.Reasons = []string{httpapi.ReasonUnheld}
	case job.Status == dispatcherd.Pending && job.LastError() == claim.WhyUnheld:
		why.Reasons = append(why.Reasons, httpapi.ReasonUnheld)
	}
	why.Job, why.Type, why.Status, why.Priority = id, job.Type, job.Status, job.Priority
	if slices.Contains(x.Reasons, actor.ReasonScheduled) || slices.Contains(x.Reasons, actor.ReasonBackoff) {
		why.RunAt = &job.RunAt
	}
	why.Failures, why.Attempts = job.Failures, job.MaxAttempts
	switch {
	case job.Status == dispatcherd.Running:
		why.Stopping = x.Stopping
	case why.Capacity+why.OtherSlots == 0:
		why.Offered, why.Similar = b.offered(job.Type)
		why.Drained = b.drained(job.Type)
	}
	return why
}

// addPermits completes the placement of a job with keys from the decision log. The log was written before it was known since when the job
// had its permits, so its reasons may be older.
func addPermits(why *httpapi.Why, job *contract.Job, placed *contract.Placement) {
	if p := why.Placement; p != nil && job.Keys != nil {
		if p.WaitedFor = nil; placed != nil {
			p.Permits, p.WaitedFor = placed.Permits, strings.Fields(placed.WaitedFor)
		}
	}
}

// addRecord adds the placement and the end that the row contains, unless the decision log has
// the placement.
func addRecord(why *httpapi.Why, job *contract.Job) {
	p := job.Placement
	if why.Placement != nil || p == nil || job.StartedAt == nil || job.FinishedAt == nil {
		return
	}
	s := p.Score
	why.Placement = &httpapi.Placement{
		At: *job.StartedAt, Attempt: int(job.Attempt), Slot: int64(p.Slot), Worker: p.Worker, Waited: p.Waited, Permits: p.Permits,
		WaitedFor: strings.Fields(p.WaitedFor),
		Score:     contract.Score{ScoreTerms: s, Total: s.Base + s.Age + s.Rarity + s.Brevity},
	}
	why.End = &httpapi.End{At: *job.FinishedAt, Attempt: int(job.Attempt), Outcome: string(job.Status), Waited: p.Waited, Ran: p.Ran}
	why.DecisionLog = ""
}

// inHand reports whether a reason says that the Core has the job in hand.
func inHand(r actor.Reason) bool {
	return r == actor.ReasonRunning || r == actor.ReasonRecording || r == actor.ReasonUnrecordable || r == actor.ReasonClaimed
}

// whyRequest explains a request in memory, which only the Core and the decision log know.
func (b *Backend) whyRequest(id dispatcherd.JobID) (httpapi.Why, error) {
	x := b.explain(actor.Inquiry{ID: id})
	if x.Mode != dispatcherd.OnDemand {
		return b.whyEndedRequest(id)
	}
	why := whyView(&x)
	why.Job, why.Status, why.Stopping = id, dispatcherd.Pending, x.Stopping
	b.addDecisions(&why, id, 0)
	if slices.Contains(x.Reasons, actor.ReasonRunning) {
		why.Status = dispatcherd.Running
	} else if why.Placement == nil {
		why.DecisionLog = ""
	}
	return why, nil
}

// classOf returns the duration class of a job.
func classOf(job *contract.Job) dispatcherd.DurationClass {
	if job.ExpectedMS == nil {
		return dispatcherd.NoDuration
	}
	return dispatcherd.ClassOf(time.Duration(*job.ExpectedMS) * time.Millisecond)
}

func (b *Backend) explain(q actor.Inquiry) actor.Explanation {
	b.Loop.Order(actor.Tick{}) // updates the ages
	return actor.Explain(q, b.Loop)
}

func whyView(x *actor.Explanation) httpapi.Why {
	score := x.Terms.Points()
	why := httpapi.Why{
		Type: x.Type, Mode: x.Mode.String(), Priority: x.Priority, Reasons: make([]string, len(x.Reasons)),
		Age: contract.Seconds(x.Age), Score: &score,
		Standing: x.Standing, Paused: x.Paused,
	}
	for i, r := range x.Reasons {
		why.Reasons[i] = string(r)
	}
	if x.Bounded {
		why.Overtaking = &httpapi.Overtaking{Window: contract.Seconds(x.Window), Closes: contract.Seconds(x.Closes)}
	}
	if x.Expected > 0 {
		why.Expected = &httpapi.Expected{Class: x.Class.String(), Duration: contract.Seconds(x.Expected), Learned: x.Learned}
		if x.Bounded {
			why.Expected.PassedBy = new(contract.Seconds(x.PassedBy))
		}
	}
	return why
}

// addDecisions adds the entries of the decision log about the latest attempt of the job to an
// explanation. It reports whether there are any. An entry of a placement does not contain the
// attempt of a row, so its time tells whether it belongs to an earlier one.
func (b *Backend) addDecisions(why *httpapi.Why, id dispatcherd.JobID, attempt dispatcherd.Attempt) bool {
	if b.Decisions == nil {
		why.DecisionLog = httpapi.DecisionLogOff
		return false
	}
	placed, ended := b.Decisions.Find(id)
	if placed != nil && ended != nil && ended.Attempt < attempt && !placed.At.After(ended.At) {
		placed = nil
	}
	if ended != nil && (ended.Attempt < attempt || placed != nil && placed.At.After(ended.At)) {
		ended = nil
	}
	if placed != nil {
		why.Placement = placementView(placed)
	}
	if ended != nil {
		why.Type, why.Priority = ended.Type, ended.Priority
		why.End = &httpapi.End{
			At:      ended.At,
			Attempt: int(ended.Attempt),
			Outcome: ended.OutcomeName(),
			Waited:  contract.Seconds(ended.Waited),
			Ran:     contract.Seconds(ended.Ran),
		}
	}
	switch {
	case placed != nil:
	case b.Decisions.Stats().Overwritten > 0:
		why.DecisionLog = httpapi.DecisionLogOverwritten
	default:
		why.DecisionLog = httpapi.DecisionLogMissing
	}
	return placed != nil || ended != nil
}

// addOrigin adds who placed a row that has ended, if the decision log has no placement.
func addOrigin(why *httpapi.Why, job *contract.Job, me int) {
	switch {
	case why.Placement != nil:
	case job.Attempt == 0:
		why.DecisionLog = httpapi.DecisionLogNeverPlaced
	case job.Dispatcher != nil && *job.Dispatcher != me:
		why.DecisionLog, why.Dispatcher, why.DispatcherName = httpapi.DecisionLogMissing, *job.Dispatcher, given(job.DispatcherName)
	}
}

func placementView(e *decisionlog.Entry) *httpapi.Placement {
	return &httpapi.Placement{
		At: e.At, Attempt: int(e.Attempt), Slot: int64(e.Slot), Worker: e.Worker, Score: e.Terms.Points(),
		Capacity: int(e.Capacity), SlotTypes: int(e.SlotTypes), Waited: contract.Seconds(e.Waited), WaitedFor: e.ReasonNames(),
		RunnerUp: e.Second(),
	}
}

// whyEndedRequest explains a request that is no longer in memory.
func (b *Backend) whyEndedRequest(id dispatcherd.JobID) (httpapi.Why, error) {
	why := httpapi.Why{Job: id, Mode: dispatcherd.OnDemand.String(), Status: dispatcherd.Failed, Reasons: []string{httpapi.ReasonFinal}}
	if !b.addDecisions(&why, id, 0) || why.End == nil {
		return httpapi.Why{}, httpapi.ErrNotFound // it was never here, or its entries are overwritten
	}
	if why.DecisionLog == httpapi.DecisionLogMissing { // no other process has requests with this id
		why.DecisionLog = httpapi.DecisionLogNeverPlaced
	}
	if why.End.Outcome == effect.AnswerDone.String() {
		why.Status = dispatcherd.Done
	}
	return why, nil
}
