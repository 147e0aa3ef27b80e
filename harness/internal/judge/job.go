package judge

import "github.com/dispatcherd/dispatcherd/harness/internal/history"

// row checks where a job ended, and by whose word.
func (r *Report) row(id int64, j *job) {
	row := j.row
	if row == nil {
		r.find(&r.Unexpected, "unexpected", id, "the job left traces and has no row")
		return
	}
	r.Crashes += int(row.Crashes)
	r.Failures += int(row.Failures)
	if j.work == nil {
		r.find(&r.Unexpected, "unexpected", id, "no producer made the job %d", row.N)
		return
	}
	r.words(id, row)
	switch {
	case row.Status == "pending" || row.Status == "running":
		r.find(&r.Lost, "lost", id, "job %d is still %s after attempt %d", row.N, row.Status, row.Attempt)
		return
	case row.Status == "cancelled" && j.work.Dropped:
		return
	case row.Status != j.work.Wanted():
		r.find(&r.Unexpected, "unexpected", id, "it is %s, its work wants %s: %v", row.Status, j.work.Wanted(), row.Errors)
	case row.Status == "done" && (row.Result == nil || row.Result.N != row.N):
		r.find(&r.Unexpected, "unexpected", id, "its result is that of another job: %v", row.Result)
	}
	r.author(id, j)
}

// words looks for an attempt's word under another attempt's number.
func (r *Report) words(id int64, row *history.Row) {
	if row.Result != nil && row.Result.N == row.N && row.Result.Attempt != row.Attempt {
		r.find(&r.Stale, "stale", id, "attempt %d is recorded with the result of attempt %d", row.Attempt, row.Result.Attempt)
	}
	for _, e := range row.Errors {
		if said, ok := history.PlannedAttempt(e.Error); ok && said != e.Attempt {
			r.find(&r.Stale, "stale", id, "attempt %d is recorded with the failure of attempt %d", e.Attempt, said)
		}
	}
}

// author checks that the attempt that counts is one that a worker has ended, in
// the way that is recorded.
func (r *Report) author(id int64, j *job) {
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
	r.find(&r.Stale, "stale", id, "it is %s by attempt %d, which no worker ended so", j.row.Status, j.row.Attempt)
}

// recorded is when the end was recorded; without a trace of that, at any time.
func (j *job) recorded() int64 {
	for _, c := range j.changes {
		if c.Kind == history.Ended {
			return c.At
		}
	}
	return forever
}

// transitions follows the row through Postgres.
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
		case history.Illegal, history.Lost:
			legal = false
		}
		if !legal {
			r.find(&r.Illegal, "illegal", id, "transition %d to attempt %d after attempt %d (running %v, final %v)",
				c.Kind, c.Attempt, attempt, running, finished)
		}
	}
	if j.row != nil && j.row.Attempt != attempt {
		r.find(&r.Stale, "stale", id, "attempt %d was the last one handed out, the row says %d", attempt, j.row.Attempt)
	}
}

// executions checks what workers did with the job.
func (r *Report) executions(id int64, j *job) {
	var busy int64 // until when an earlier execution may have been at work
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
		if j.row != nil && (e.N != j.row.N || e.Type != j.row.Type) {
			r.find(&r.Unexpected, "unexpected", id, "worker %s got job %d of type %s, the row is %d of type %s",
				e.process.Name, e.N, e.Type, j.row.N, j.row.Type)
		}
	}
}
