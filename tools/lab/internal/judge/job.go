package judge

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// row checks the final status of a job and which attempt ended it.
func (r *Report) row(id int64, j *job) {
	row := j.row
	if row == nil {
		r.find(&r.Unexpected, "unexpected", id, "the job was changed or executed but has no row")
		return
	}
	r.Crashes += int(row.Crashes)
	r.Failures += int(row.Failures)
	if j.work == nil {
		r.find(&r.Unexpected, "unexpected", id, "no producer inserted the job %d", row.N)
		return
	}
	r.checkAttempts(id, row)
	if want := j.typeAfter(); row.Type != want {
		r.find(&r.Unexpected, "unexpected", id, "its type is %s, but the producer or operator set %s", row.Type, want)
	}
	switch {
	case row.Status == "pending" || row.Status == "running":
		r.find(&r.Lost, "lost", id, "job %d is still %s after attempt %d", row.N, row.Status, row.Attempt)
		return
	case row.Status == "cancelled" && j.work.Dropped:
		return
	case row.Damaged:
		r.damaged(id, row)
	case row.Status != j.work.Wanted():
		r.find(&r.Unexpected, "unexpected", id, "its status is %s, but its payload demands %s: %v", row.Status, j.work.Wanted(), row.Errors)
	case row.Status == "done" && (row.Result == nil || row.Result.N != row.N):
		r.find(&r.Unexpected, "unexpected", id, "its result is that of another job: %v", row.Result)
	}
	r.checkLastAttempt(id, j)
}

// damaged checks the end of a job whose payload was lost. The job has failed with a reason. If a worker
// had the payload already, the job may be done.
func (r *Report) damaged(id int64, row *history.Row) {
	if row.Status != "done" && (row.Status != "failed" || len(row.Errors) == 0) {
		r.find(&r.Unexpected, "unexpected", id, "its payload was lost, its status is %s, and it has %d errors", row.Status, len(row.Errors))
	}
}

// checkAttempts checks that results and errors of an attempt are not recorded under another
// attempt.
func (r *Report) checkAttempts(id int64, row *history.Row) {
	if row.Result != nil && row.Result.N == row.N && row.Result.Attempt != row.Attempt {
		r.find(&r.Stale, "stale", id, "attempt %d is recorded with the result of attempt %d", row.Attempt, row.Result.Attempt)
	}
	for _, e := range row.Errors {
		if said, ok := history.PlannedAttempt(e.Error); ok && said != e.Attempt {
			r.find(&r.Stale, "stale", id, "attempt %d is recorded with the failure of attempt %d", e.Attempt, said)
		}
	}
}

// checkLastAttempt checks that a worker ended the last attempt in the way that is recorded.
func (r *Report) checkLastAttempt(id int64, j *job) {
	want := history.OK
	switch {
	case j.row.Status == "done":
	case j.work.Do == history.Refuse:
		want = history.Refused
	default:
		return // a job that kills its worker is ended by the dispatcher
	}
	for _, run := range j.runs {
		if run.Attempt == j.row.Attempt && run.Outcome == want && run.End <= j.recorded()+history.Slack.Nanoseconds() {
			return
		}
	}
	r.find(&r.Stale, "stale", id, "its status is %s by attempt %d, but no worker ended the attempt in this way", j.row.Status, j.row.Attempt)
}

// recorded returns when the end was recorded, or the largest time if the change is
// unknown.
func (j *job) recorded() int64 {
	for _, c := range j.changes {
		if c.Kind == history.Ended {
			return c.At
		}
	}
	return Forever
}

// transitions checks the sequence of the row's changes in Postgres.
func (r *Report) transitions(id int64, j *job) {
	var (
		running  bool
		attempt  int32
		finished bool
		owner    int32
	)
	for _, c := range j.changes {
		legal := !finished
		switch c.Kind {
		case history.Inserted:
			legal = legal && attempt == 0 && c.Attempt == 0
		case history.Claimed:
			legal = legal && !running && c.Attempt == attempt+1
			running, attempt, owner = true, c.Attempt, c.Dispatcher
		case history.Back:
			legal = legal && running && c.Attempt == attempt
			running = false
		case history.Ended:
			legal = legal && running && c.Attempt == attempt
			if j.row != nil && j.row.Status == "done" { // other statuses are set by a cancellation or a release
				legal = legal && c.Dispatcher == owner
			}
			running, finished = false, true
		case history.Adopted:
			legal = legal && running && c.Attempt == attempt
			owner = c.Dispatcher
		case history.Updated:
		case history.Illegal, history.Lost:
			legal = false
		}
		if !legal {
			r.find(&r.Illegal, "illegal", id, "transition %d to attempt %d after attempt %d (running %v, final %v)",
				c.Kind, c.Attempt, attempt, running, finished)
		}
	}
	if j.row != nil && j.row.Attempt != attempt {
		r.find(&r.Stale, "stale", id, "attempt %d was the last one claimed, but the row says %d", attempt, j.row.Attempt)
	}
}

// executions checks the executions of the job on workers.
func (r *Report) executions(id int64, j *job) {
	var busy int64 // time until which an earlier execution may have run
	over := map[int32]int64{}
	for _, c := range j.changes {
		if c.Kind == history.Back || c.Kind == history.Ended {
			over[c.Attempt] = c.At
		}
	}
	for _, e := range j.runs {
		if at := over[e.Attempt]; at != 0 && e.Start > at+history.Slack.Nanoseconds() {
			r.Late++
		}
		if e.Start < busy {
			r.Twice++
		}
		busy = max(busy, e.until())
		if j.row != nil {
			r.received(id, j, e)
		}
	}
}

// received compares what a worker received with the row. An operator may change the
// type of a row. The type at the claim counts.
func (r *Report) received(id int64, j *job, e run) {
	typ := j.typeAt(e.Attempt)
	if e.N != j.row.N || e.Type != typ {
		r.find(&r.Unexpected, "unexpected", id, "worker %s got job %d of type %s, the row is %d of type %s",
			e.process.Name, e.N, e.Type, j.row.N, typ)
	}
	if offered := e.process.Offers[e.Slot]; e.Type != typ && !slices.Contains(offered, typ) {
		r.find(&r.Affinity, "affinity", id, "slot %d of %s offers %v and got a %s", e.Slot, e.process.Name, offered, typ)
	}
}

// typeAt returns the type of the row at the claim of an attempt.
func (j *job) typeAt(attempt int32) string {
	typ := j.row.Type
	for _, c := range j.changes {
		switch {
		case c.Type != "":
			typ = c.Type
		case c.Kind == history.Claimed && c.Attempt == attempt:
			return typ
		}
	}
	return typ
}

// typeAfter returns the type that the producer, or the last update of an operator, gave
// the row.
func (j *job) typeAfter() string {
	typ := j.work.Type
	for _, c := range j.changes {
		if c.Kind == history.Updated {
			typ = c.Type
		}
	}
	return typ
}
