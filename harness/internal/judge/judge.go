package judge

import (
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd/harness/internal/history"
)

// Report is the verdict on a history. All but the first and the last group
// must be zero.
type Report struct {
	Jobs       int // committed
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

	Twice    int // executions that began while an earlier one of the same job was still under way
	Late     int // executions that began although their attempt was over
	Unknown  int // batches whose COMMIT was never answered
	Crashes  int // as the rows count them
	Failures int

	Findings []Finding // the first ones of each kind
}

// Finding is one violation.
type Finding struct {
	Kind string
	Job  int64 // 0 = it has no row
	Text string
}

// findingsPerKind bounds the evidence that is kept.
const findingsPerKind = 10

// Violations is how many promises were broken.
func (r *Report) Violations() int {
	return r.Lost + r.Unexpected + r.Stale + r.Affinity + r.Overlaps + r.Illegal + r.Disorder + r.Stuck + r.Dishonest
}

func (r *Report) find(count *int, kind string, job int64, format string, args ...any) {
	if *count++; *count <= findingsPerKind {
		r.Findings = append(r.Findings, Finding{Kind: kind, Job: job, Text: fmt.Sprintf(format, args...)})
	}
}

// job is all that is known of one row.
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

// until is when an execution did nothing more. A process that is killed is at
// most moments older than the kill; that its end was noticed may take longer.
func (r run) until() int64 {
	switch {
	case r.End != 0:
		return r.End
	case r.process.Killed != 0:
		return r.process.Killed
	case r.process.Died != 0:
		return lastWord(r.process) // the instant of its death is not recorded
	}
	return forever
}

// lastWord is when a process last wrote into its log.
func lastWord(p *history.Process) (at int64) {
	for i := range p.Runs {
		at = max(at, p.Runs[i].Start, p.Runs[i].End)
	}
	return at
}

const forever = int64(1) << 62

// Judge checks every promise.
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

// index brings the logs together, and finds what is in one and not in another.
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
			r.find(&r.Unexpected, "unexpected", row.Job, "the job %d is there twice", row.N)
			continue
		}
		get(row.Job).row, byNumber[row.N] = row, row
	}
	for i := range h.Batches {
		r.batch(&h.Batches[i], byNumber, jobs)
	}
	r.trail(h, get)
	for i := range h.Processes {
		p := &h.Processes[i]
		for k := range p.Runs {
			if p.Runs[k].Job < 0 {
				continue // a request in memory: its caller knows what became of it
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

// trail hands each change to its job. A dispatcher that was declared lost may
// claim no row from then on: the dispatcher that declares it lost waits for its claims. It
// may still end the rows it had claimed until they are released a moment later, because its
// attempt is still the current one. An end after that is no transition.
func (r *Report) trail(h *history.History, get func(int64) *job) {
	lost := map[int32]bool{}
	for i := range h.Changes {
		c := &h.Changes[i]
		if c.Kind == history.Lost {
			lost[c.Dispatcher] = true
			continue
		}
		j := get(c.Job)
		if taken := c.Kind == history.Claimed || c.Kind == history.Adopted; taken && lost[c.Dispatcher] {
			r.find(&r.Illegal, "illegal", c.Job, "dispatcher %d was lost, and then came its change %d of attempt %d", c.Dispatcher, c.Kind, c.Attempt)
		}
		j.changes = append(j.changes, c)
	}
}

// batch compares a producer's transaction with what is there.
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
			r.find(&r.Lost, "lost", 0, "job %d was committed and is gone", w.N)
		case row != nil && b.Fate == history.RolledBack:
			r.find(&r.Unexpected, "unexpected", row.Job, "job %d was rolled back and is there", w.N)
		case row != nil && row.Type != w.Type:
			r.find(&r.Unexpected, "unexpected", row.Job, "its type is %s, the producer gave %s", row.Type, w.Type)
		}
	}
	switch b.Fate {
	case history.Committed:
		r.Jobs += len(b.Jobs)
	case history.Unknown:
		r.Unknown++
		if there != 0 && there != len(b.Jobs) {
			r.find(&r.Unexpected, "unexpected", 0, "%d of %d jobs of one transaction are there", there, len(b.Jobs))
		}
		r.Jobs += there
	case history.RolledBack:
	}
}
