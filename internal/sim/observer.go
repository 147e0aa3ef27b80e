package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// job is what the simulator records about a row that the table does not contain.
type job struct {
	insert    claimfake.Row        // as its producer inserts it
	visible   moment               // when the row last became pending
	execution int32                // first live execution plus one; executions are linked
	started   dispatcherd.Attempt  // newest attempt that a worker started
	succeeded dispatcherd.Attempt  // newest attempt that succeeded on a worker
	typ       uint8                // of the newest attempt
	ranBy     int16                // worker that started the newest attempt
	ended     moment               // when it got its final status
	overtaken moment               // when a later job of its class was first admitted before it
	moved     bool                 // an operator changed its type or priority, or it has waited for other jobs
	refused   bool                 // Postgres refused to claim it once
	adopted   int64                // token of the newest adoption
	lock      *claimfake.Statement // of another program
}

// job returns the record of a row, or nil for a request.
func (w *world) job(id dispatcherd.JobID) *job {
	if id < 1 || int(id) > len(w.jobs) {
		return nil
	}
	return &w.jobs[id-1]
}

// runsAttempt reports whether an attempt is the running one of a row.
func (w *world) runsAttempt(id dispatcherd.JobID, a dispatcherd.Attempt) bool {
	r := w.table.Row(id)
	return r != nil && r.Status == dispatcherd.Running && r.Attempt == a
}

// hostOf returns the host of a run of a dispatcher.
func (w *world) hostOf(run int32) *host { return w.hosts[w.runs[run-1]] }

// skips are the checks that the table leaves out in a world without a safeguard.
var skips = map[Break]claimfake.Check{
	WithoutFence: claimfake.CheckFence, WithoutStatus: claimfake.CheckStatus, WithoutLease: claimfake.CheckLease,
	WithoutEpoch: claimfake.CheckEpoch, WithoutTakeover: claimfake.CheckRelease, WithoutFingerprint: claimfake.CheckFingerprint,
	WithoutAttempt: claimfake.CheckAttempt, WithoutGeneration: claimfake.CheckGeneration,
	WithoutMembership: claimfake.CheckMembership, WithoutHold: claimfake.CheckHold, WithoutDeadline: claimfake.CheckDeadline,
	WithoutPermit: claimfake.CheckPermit, WithoutNumber: claimfake.CheckNumber,
	WithoutRecord: claimfake.CheckRecord, WithoutCounted: claimfake.CheckCounted, WithoutRecorded: claimfake.CheckRecorded,
	WithoutLinked: claimfake.CheckLinked, WithoutRunWhen: claimfake.CheckRunWhen, WithoutChildren: claimfake.CheckChildren,
	WithoutParent: claimfake.CheckParent, WithoutEnds: claimfake.CheckEnds,
}

// observer passes the changes of the table to the judge. It implements claimfake.Observer.
type observer struct{ *world }

// Claims implements claimfake.Observer.
func (w observer) Claims(s *claimfake.Statement, r *claimfake.Row) {
	w.judge.claimed(w.world, r, s)
	w.judge.claimedKeys(w.world, r)
	w.judge.joins.checkWait(w.world, r, true)
	w.job(r.ID).typ = uint8(typeNumber(r.Type))
}

// Adopts implements claimfake.Observer.
func (w observer) Adopts(s *claimfake.Statement, o *contract.ResumeOffer, r *claimfake.Row) {
	w.judge.adopted(w.world, o, r, s)
	if !o.Renewal {
		w.job(o.ID).adopted = s.Token()
		w.stats.Adopted++
	}
}

// Finishes implements claimfake.Observer.
func (w observer) Finishes(s *claimfake.Statement, f *contract.Finish, r *claimfake.Row) {
	w.judge.finished(w.world, r, f, s)
	w.judge.releasedRunning(w.world, f, s)
}

// Releases implements claimfake.Observer.
func (w observer) Releases(s *claimfake.Statement, r *claimfake.Row, crashes int32) {
	w.judge.released(w.world, r, s, crashes)
}

// ReleasesUnheld implements claimfake.Observer. Only a late copy of an adoption can take a row that its dispatcher does not run.
func (w observer) ReleasesUnheld(r *claimfake.Row) {
	if _, runs, _ := w.hostOf(r.Dispatcher).core.RunsOn(r.ID); runs != r.Attempt && w.job(r.ID).adopted == r.Token {
		return
	}
	w.violate("job %d is released although dispatcher %d runs it", r.ID, r.Dispatcher)
}

// Renews implements claimfake.Observer.
func (w observer) Renews(run int32) { w.judge.leased(run, w.now+w.scale.lease) }

// DeclaresLost implements claimfake.Observer.
func (w observer) DeclaresLost(run int32) { w.judge.declaredLost(w.world, run) }

// HandsOver implements claimfake.Observer.
func (w observer) HandsOver(run int32) { w.judge.handsOver(w.world, run) }

// Admits implements claimfake.Observer.
func (w observer) Admits(r *claimfake.Row, fence int64) {
	w.stats.Admitted++
	w.hash = mix(mix(w.hash, uint64(r.ID)), uint64(fence))
	w.judge.admitted(w.world, r)
}

// Fires implements claimfake.Observer.
func (w observer) Fires(r *claimfake.Row, runs bool) {
	w.job(r.ID).moved = true
	w.judge.joins.fires(w.world, r, runs)
}

// Pending implements claimfake.Observer.
func (w observer) Pending(r *claimfake.Row) { j := w.job(r.ID); j.visible = max(j.visible, w.now) }

// Ended implements claimfake.Observer.
func (w observer) Ended(r *claimfake.Row) {
	w.open--
	w.progress, w.job(r.ID).ended = w.now, w.now
	switch r.Status {
	case dispatcherd.Done:
		w.stats.Done++
	case dispatcherd.Failed:
		w.stats.Failed++
	case dispatcherd.Cancelled:
		w.stats.Cancelled++
	}
}

// Notified implements claimfake.Observer.
func (w observer) Notified() { w.notify() }

// Unlocked implements claimfake.Observer.
func (w observer) Unlocked() { w.wakeWaiters() }
