package sim

import (
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// hardRows holds the parameters of the fault Rows.
type hardRows struct {
	random      random
	gap         moment // mean time between two disturbances of rows; 0 = there are none
	large       int64  // inserts of 10,000 with a payload that a claim does not read
	unreadable  int64  // inserts of 10,000 with a payload that Postgres cannot read
	unclaimable int64  // inserts of 10,000 that Postgres refuses to claim for a while
}

// pickRows uses its own random source, as pickDetachment does.
func (w *world) pickRows() {
	c := &w.rows
	c.random.pcg = *rand.NewPCG(w.opt.Seed, 0x726f7773)
	if !w.opt.Every && c.random.below(2) == 0 {
		w.faults &^= Rows
	}
	if w.faults&Rows == 0 {
		return
	}
	c.gap = []moment{second / 200, second / 20, second / 2}[c.random.below(3)]
	c.large = []int64{0, 500, 5000}[c.random.below(3)]
	c.unreadable = []int64{0, 100}[c.random.below(2)]
	c.unclaimable = []int64{0, 100, 1000}[c.random.below(3)]
}

// largePayload is larger than claim.SmallPayload.
var largePayload = []byte(`"` + strings.Repeat("x", 9<<10) + `"`)

var (
	errUnreadable = errors.New("missing chunk number 0 for toast value")
	errRefused    = errors.New("a trigger refuses the row")
)

// harden gives a new row the properties that make it hard to claim.
func (w *world) harden(r *claimfake.Row) {
	if w.faults&Rows == 0 {
		return
	}
	d := &w.rows.random
	if d.chance(w.rows.large) {
		r.Payload = largePayload
	}
	if d.chance(w.rows.unreadable) {
		r.Unreadable = errUnreadable
	}
	if d.chance(w.rows.unclaimable) {
		r.Refused = errRefused
	}
}

// longestDisturbance is how long a row is locked or refused at most.
const longestDisturbance = 3 * second

// asidePause is how long a dispatcher that was refused a row leaves it out.
var asidePause = moment(contract.AsideTime.Microseconds())

// never is later than every moment of a world.
const never = moment(1) << 60

// disturbRow locks a row, makes Postgres refuse to claim it, or changes its lane, as
// operators and other programs may do. Postgres refuses each row for one period only.
func (w *world) disturbRow() {
	if w.healing {
		return
	}
	d := &w.rows.random
	w.plan(task{at: w.now + 1 + d.span(0, 4*w.rows.gap), kind: rowTurn})
	n := int64(len(w.jobs))
	if n == 0 || w.postgres.down || w.postgres.cut {
		return
	}
	id := dispatcherd.JobID(n - d.span64(n))
	r, j := w.table.Row(id), w.job(id)
	if r == nil || r.Locked() || r.Status.Final() || r.Refused != nil {
		return
	}
	switch what := d.below(4); {
	case what == 0:
		w.stats.RowsLocked++
		j.lock = w.table.Lock(id)
		w.planRepair(id)
	case r.Status != dispatcherd.Pending:
	case what == 1 && !j.refused:
		r.Refused = errRefused
		w.refuse(id)
	default:
		w.stats.RowsMoved++
		j.moved = true
		w.table.Change(id, w.typeNames[d.below(int64(w.scale.types))], w.scale.priorities[d.below(int64(len(w.scale.priorities)))])
	}
}

// refuse notes that Postgres refuses to claim a row.
func (w *world) refuse(id dispatcherd.JobID) {
	j := w.job(id)
	j.refused, j.visible = true, never
	w.planRepair(id)
}

func (w *world) planRepair(id dispatcherd.JobID) {
	w.plan(task{at: w.now + 1 + w.rows.random.span(0, longestDisturbance), kind: rowRepair, arg: int32(id)})
}

// repairRow ends a disturbance. Dispatchers that met it claim the row after a pause.
func (w *world) repairRow(id dispatcherd.JobID) {
	r, j := w.table.Row(id), w.job(id)
	if j.lock != nil {
		j.lock.Abort()
		j.lock, j.visible = nil, max(j.visible, w.now)
	}
	if r.Refused != nil {
		r.Refused, j.visible = nil, w.now+asidePause
	}
}

// setAside checks that a dispatcher reports each row that it was refused.
func (j *judge) setAside(w *world, h *host, rows []contract.Unclaimable) {
	w.stats.SetAside += len(rows)
	for _, u := range rows {
		r := w.table.Row(u.ID)
		x := actor.Explain(
			actor.Inquiry{
				ID:       r.ID,
				Type:     r.Type,
				Priority: r.Priority,
				Class:    dispatcherd.ClassOf(r.Expected),
				RunAt:    r.RunAt,
				Failures: r.Failures,
			},
			h.core,
		)
		if x.SetAside != u.Reason {
			w.violate("dispatcher %d was refused job %d because of %q and reports %q", h.id, u.ID, u.Reason, x.SetAside)
		}
	}
}
