package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// How long after the end of its parent a child may start, until a dispatcher has counted that end; and end,
// until its worker has stopped. If the dispatcher of the child is killed, its successor holds the job for the
// worker for 10 s before it is released and cancelled, and may be killed, too.
const (
	orphanStarts = 10 * time.Second
	orphanEnds   = 30 * time.Second
)

// structure is what the rows say about structures, by ids.
type structure struct {
	parts   map[int64]*history.Part
	copies  map[int64]int // rows of each job
	members map[int64][]*history.Part
	pauses  Pauses
}

func newStructure(h *history.Structures) *structure {
	s := &structure{parts: make(map[int64]*history.Part, len(h.Jobs)), copies: map[int64]int{}, members: map[int64][]*history.Part{}}
	var starts []int64
	for i := range h.Jobs {
		p := &h.Jobs[i]
		if p.Started != 0 {
			starts = append(starts, p.Started)
		}
		if s.parts[p.Job] != nil {
			s.copies[p.Job]++
			continue
		}
		s.parts[p.Job] = p
		if p.Parent != 0 {
			s.members[p.Parent] = append(s.members[p.Parent], p)
		}
	}
	s.pauses = NewPauses(starts)
	return s
}

// needs returns the jobs for which a join waits. All are known, except for those that are not in the table.
func (s *structure) needs(j *history.Join) (list []*history.Part, missing int64) {
	if j.Kind != "node" {
		return s.members[j.ID], 0
	}
	for _, id := range j.DependsOn {
		if s.parts[id] == nil {
			missing = id
			continue
		}
		list = append(list, s.parts[id])
	}
	return list, missing
}

// Joins checks batches, flows, parents and nodes by their rows, which were read when nothing should have waited or run any more.
func (r *Report) Joins(h *history.Structures) {
	s := newStructure(h)
	for i := range h.Joins {
		j := &h.Joins[i]
		needs, missing := s.needs(j)
		if missing != 0 {
			r.find(&r.JoinedLost, "joined lost", j.ID, "its dependency %d has no row", missing)
		}
		r.joinedEarly(s, j, needs)
		r.joinedLost(s, j, needs)
		r.joinedTwice(s, j, needs)
		if j.Kind == "children" {
			r.orphans(s, s.parts[j.ID], needs)
		}
	}
	for i := range h.Jobs {
		if p := &h.Jobs[i]; p.Ended == 0 {
			r.find(&r.JoinedLost, "joined lost", p.Job, "it is still %s", p.Status)
		}
	}
}

// waiting returns the job that waits for a join, or nil.
func (s *structure) waiting(j *history.Join) *history.Part {
	if j.Callback || j.Kind == "node" {
		return s.parts[j.ID]
	}
	return nil
}

// allowed reports whether a job runs after its dependencies have ended.
func allowed(when string, needs []*history.Part) bool {
	bad := slices.ContainsFunc(needs, func(p *history.Part) bool { return p.Status == "failed" || p.Status == "cancelled" })
	return when == "ended" || bad == (when == "failed")
}

// joinedEarly finds a join that fired, or whose job started, before the end of a job for which it waits, or whose job ran although its rule
// forbids that.
func (r *Report) joinedEarly(s *structure, j *history.Join, needs []*history.Part) {
	first := j.Fired
	w := s.waiting(j)
	if w != nil && w.Started != 0 {
		first = min(cmp.Or(first, Forever), w.Started)
	}
	if first != 0 {
		for _, p := range needs {
			if p.Ended == 0 || p.Ended > first {
				r.find(&r.JoinedEarly, "joined early", j.ID,
					"the %s fired at %d or its job started at %d, but job %d ended at %d (0 = not)", j.Kind, j.Fired, startOf(w),
					p.Job, p.Ended)
				return
			}
		}
	}
	if startOf(w) != 0 && !allowed(j.When, needs) {
		r.find(&r.JoinedEarly, "joined early", j.ID, "it ran, but its rule is %s", j.When)
	}
}

func startOf(p *history.Part) int64 {
	if p == nil {
		return 0
	}
	return p.Started
}

// joinedLost finds a join that never fired, and one whose job did not run although its rule demands that.
func (r *Report) joinedLost(s *structure, j *history.Join, needs []*history.Part) {
	w := s.waiting(j)
	switch {
	case j.Kind == "node" && j.Cancelled && j.Fired == 0: // it was cancelled as a member of its flow
	case j.Fired == 0 && (j.Kind != "node" || len(needs) > 0):
		r.find(&r.JoinedLost, "joined lost", j.ID, "the %s has not fired", j.Kind)
	case w == nil && (j.Callback || j.Kind == "node"):
		r.find(&r.JoinedLost, "joined lost", j.ID, "the job of the %s has no row", j.Kind)
	case w == nil || w.Started != 0 || j.Cancelled:
	case w.Status == "failed" || w.Status == "cancelled" && w.By == "flow" && allowed(j.When, needs):
		r.find(&r.JoinedLost, "joined lost", j.ID, "the job is %s and never ran, but its rule is %s", w.Status, j.When)
	}
}

// joinedTwice finds a job that was released twice or has two rows, and ends that were not counted once.
func (r *Report) joinedTwice(s *structure, j *history.Join, needs []*history.Part) {
	if w := s.waiting(j); w != nil && (s.copies[w.Job] > 0 || w.Released > 1) {
		r.find(&r.JoinedTwice, "joined twice", j.ID, "the job was released %d times and has %d rows", w.Released, 1+s.copies[w.Job])
		return
	}
	if j.Fired == 0 {
		return
	}
	var done, failed, stopped int
	for _, p := range needs {
		switch p.Status {
		case "done":
			done++
		case "failed":
			failed++
		case "cancelled":
			stopped++
		}
	}
	if j.Kind == "node" {
		failed, stopped = failed+stopped, 0
	}
	if want, got := fmt.Sprint(done, failed, stopped), fmt.Sprint(j.Done, j.Failed, j.Stopped); want != got {
		r.find(&r.JoinedTwice, "joined twice", j.ID,
			"the %s counted %s jobs that were done, failed and cancelled, but these are %s", j.Kind, got, want)
	}
}

// orphans finds children that started or ran too long after the end of their parent.
func (r *Report) orphans(s *structure, parent *history.Part, children []*history.Part) {
	if parent == nil || parent.Ended == 0 {
		return
	}
	for _, c := range children {
		since := func(at int64) int64 { return s.pauses.Active(parent.Ended, max(at, parent.Ended)) }
		if c.Ended == 0 || since(c.Started) > orphanStarts.Microseconds() || since(c.Ended) > orphanEnds.Microseconds() {
			r.find(&r.Orphans, "orphan", c.Job, "its parent %d ended at %d; it started at %d and ended at %d (0 = not)",
				parent.Job, parent.Ended, c.Started, c.Ended)
		}
	}
}
