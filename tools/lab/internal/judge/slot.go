package judge

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// slots checks the jobs that each slot of a process received.
func (r *Report) slots(p *history.Process) {
	last := map[int32]*history.Execution{}
	for i := range p.Runs {
		e := &p.Runs[i]
		if !slices.Contains(p.Offers[e.Slot], e.Type) {
			r.find(&r.Affinity, "affinity", e.Job, "slot %d of %s offers %v and got a %s", e.Slot, p.Name, p.Offers[e.Slot], e.Type)
		}
		if before := last[e.Slot]; before != nil && (before.End == 0 || before.End > e.Start) {
			r.find(&r.Overlaps, "overlap", e.Job, "slot %d of %s still executed job %d", e.Slot, p.Name, before.Job)
		}
		last[e.Slot] = e
	}
}
