package judge

import (
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// Report is the verdict on a history. All figures except those in the first and the
// last group must be zero.
type Report struct {
	Jobs       int // committed jobs
	Executions int

	Lost       int
	Unexpected int
	Stale      int
	Affinity   int
	Overlaps   int
	Illegal    int
	Disorder   int
	Stuck      int // only after FindStuck
	Dishonest  int
	TickTwice  int // jobs of schedules beyond one for each occasion; counted in Postgres
	TickLost   int // occasions of schedules without a job
	KeyOver    int // starts beyond the capacity of a key
	KeyOrder   int // starts before an earlier job of the same keys, type and priority

	// Of batches, flows and parents; only after Joins.
	JoinedEarly int // fired, or a job started, before a job for which it waited had ended
	JoinedLost  int // never fired, or a job never ran
	JoinedTwice int // released twice, or ends not counted once
	Orphans     int // children that ran on after the end of their parent

	Delayed  int // starts and records that a trial found to be late; see FindDelayed
	Excess   int // log lines and refused inserts beyond the bounds of a trial
	Twice    int // executions that started while an earlier one of the same job ran
	Late     int // executions that started after the end of their attempt
	Unknown  int // batches whose COMMIT was not answered
	Crashes  int // as counted in the rows
	Failures int

	Findings []Finding // the first findings of each kind
}

// Finding is one violation.
type Finding struct {
	Kind string
	Job  int64 // 0 = the job has no row
	Text string
}

// findingsPerKind bounds the number of findings that are kept.
const findingsPerKind = 10

// Violations returns the number of broken guarantees.
func (r *Report) Violations() int {
	return r.Lost + r.Unexpected + r.Stale + r.Affinity + r.Overlaps + r.Illegal + r.Disorder + r.Stuck + r.Dishonest +
		r.TickTwice + r.TickLost + r.KeyOver + r.KeyOrder +
		r.JoinedEarly + r.JoinedLost + r.JoinedTwice + r.Orphans
}

func (r *Report) find(count *int, kind string, job int64, format string, args ...any) {
	if *count++; *count <= findingsPerKind {
		r.Findings = append(r.Findings, Finding{Kind: kind, Job: job, Text: fmt.Sprintf(format, args...)})
	}
}

// job is everything that is known about one row.
type job struct {
	row     *history.Row
	work    *history.Work
	batch   *history.Batch
	changes []*history.Change
	runs    []run // in the order of their starts
}

type run struct {
	*history.Execution
	process *history.Process
}

// until returns when an execution certainly did nothing more. A killed process ends
// at most moments after the kill, although its end may be noticed later.
func (r run) until() int64 {
	switch {
	case r.End != 0:
		return r.End
	case r.process.Killed != 0:
		return r.process.Killed
	case r.process.Died != 0:
		return lastEntry(r.process) // the time of its death is not recorded
	}
	return Forever
}

// lastEntry returns the time of the last entry in the log of a process.
func lastEntry(p *history.Process) (at int64) {
	for i := range p.Runs {
		at = max(at, p.Runs[i].Start, p.Runs[i].End)
	}
	return at
}

// Forever is the time of what has not happened.
const Forever = int64(1) << 62

// Judge checks every guarantee.
func Judge(h *history.History) *Report {
	r := &Report{}
	jobs := r.index(h)
	for i := range h.Processes {
		r.slots(&h.Processes[i])
	}
	for _, id := range sortedIDs(jobs) {
		j := jobs[id]
		r.row(id, j)
		r.transitions(id, j)
		r.executions(id, j)
	}
	r.order(jobs)
	r.keys(h, jobs)
	r.calls(h)
	return r
}

func sortedIDs(jobs map[int64]*job) []int64 {
	ids := make([]int64, 0, len(jobs))
	for id := range jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// index joins the logs and finds entries that are in one log but not in another.
func (r *Report) index(h *history.History) map[int64]*job {
	jobs := make(map[int64]*job, len(h.Rows))
	get := func(id int64) *job {
		j := jobs[id]
		if j == nil {
			j = &job{}
			jobs[id] = j
		}
		return j
	}
	byNumber := make(map[int64]*history.Row, len(h.Rows))
	for i := range h.Rows {
		row := &h.Rows[i]
		if get(row.Job).row != nil || byNumber[row.N] != nil {
			r.find(&r.Unexpected, "unexpected", row.Job, "the job %d has two rows", row.N)
			continue
		}
		get(row.Job).row, byNumber[row.N] = row, row
	}
	for i := range h.Batches {
		r.batch(&h.Batches[i], byNumber, jobs)
	}
	r.assignChanges(h, get)
	for i := range h.Processes {
		p := &h.Processes[i]
		for k := range p.Runs {
			if p.Runs[k].Job < 0 {
				continue // a request in memory: its outcome is checked against the call
			}
			j := get(p.Runs[k].Job)
			j.runs = append(j.runs, run{&p.Runs[k], p})
		}
		r.Executions += len(p.Runs)
	}
	for _, j := range jobs {
		slices.SortStableFunc(j.runs, func(a, b run) int { return int(a.Start - b.Start) })
	}
	return jobs
}

// assignChanges assigns each change to its job. A dispatcher that was declared lost may
// claim no row afterwards, because the dispatcher that declares it lost waits for
// its claims. It may still end the rows that it had claimed until they are released
// shortly after, because its attempt is current until then. A later end is an
// illegal transition.
func (r *Report) assignChanges(h *history.History, get func(int64) *job) {
	lost := map[int32]bool{}
	for i := range h.Changes {
		c := &h.Changes[i]
		if c.Kind == history.Lost {
			lost[c.Dispatcher] = true
			continue
		}
		j := get(c.Job)
		if taken := c.Kind == history.Claimed || c.Kind == history.Adopted; taken && lost[c.Dispatcher] {
			r.find(&r.Illegal, "illegal", c.Job, "dispatcher %d was declared lost before its change %d of attempt %d",
				c.Dispatcher, c.Kind, c.Attempt)
		}
		j.changes = append(j.changes, c)
	}
}

// batch compares a producer's transaction with the rows.
func (r *Report) batch(b *history.Batch, rows map[int64]*history.Row, jobs map[int64]*job) {
	there := 0
	for i := range b.Jobs {
		w := &b.Jobs[i]
		row := rows[w.N]
		if row != nil {
			there++
			jobs[row.Job].work, jobs[row.Job].batch = w, b
		}
		switch {
		case row == nil && b.Fate == history.Committed:
			r.find(&r.Lost, "lost", 0, "job %d was committed but has no row", w.N)
		case row != nil && b.Fate == history.RolledBack:
			r.find(&r.Unexpected, "unexpected", row.Job, "job %d was rolled back but has a row", w.N)
		}
	}
	switch b.Fate {
	case history.Committed:
		r.Jobs += len(b.Jobs)
	case history.Unknown:
		r.Unknown++
		if there != 0 && there != len(b.Jobs) {
			r.find(&r.Unexpected, "unexpected", 0, "%d of %d jobs of one transaction have rows", there, len(b.Jobs))
		}
		r.Jobs += there
	case history.RolledBack:
	}
}
