package claimfake

import (
	"cmp"
	"context"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// permitted reports whether a row has no keys or has its permits.
func (r *Row) permitted() bool { return r.Keys == "" || r.Fence > 0 }

// waits reports whether a row waits for its permits.
func (r *Row) waits() bool { return r.Keys != "" && r.Fence == 0 }

// admits reports whether a dispatcher may claim a row that has its permits.
func (r *Row) admits(dispatcher int32) bool {
	return r.AdmittedTo == 0 || r.AdmittedTo == dispatcher
}

func (r *Row) class() permits.Class {
	return permits.Class{Keys: r.Keys, Type: r.Type, Priority: int16(r.Priority)}
}

func (r *Row) job() permits.Job { return permits.Job{RunAt: r.RunAt, ID: int64(r.ID)} }

// findKeyed returns the place of a row in Table.keyed.
func (t *Table) findKeyed(id dispatcherd.JobID) (at int, found bool) {
	return slices.BinarySearchFunc(t.keyed, id, func(r *Row, id dispatcherd.JobID) int { return cmp.Compare(r.ID, id) })
}

func (t *Table) addKeyed(r *Row) {
	if r.Keys != "" {
		at, _ := t.findKeyed(r.ID)
		t.keyed = slices.Insert(t.keyed, at, r)
	}
}

func (t *Table) removeKeyed(r *Row) {
	if at, found := t.findKeyed(r.ID); found {
		t.keyed = slices.Delete(t.keyed, at, at+1)
	}
}

// Keyed returns the pending and running rows with keys by id, for reading.
func (t *Table) Keyed() []*Row { return t.keyed }

// SetLimits replaces the limits of keys.
func (t *Table) SetLimits(list []permits.Limit) {
	if t.edited == nil {
		t.edited = map[string]bool{}
	}
	for _, l := range slices.Concat(t.limits, list) {
		t.edited[l.Key] = true
	}
	t.limits = list
}

// Controller sends the statements of limitstore.Controller. Each takes effect at one instant.
type Controller struct {
	// Do runs the statement f: then, later, or never. Without an error, f has run.
	Do         func(ctx context.Context, f func(t *Table, now int64) error) error
	Dispatcher int32
	Term       int64

	number int64 // of Begin
}

// Begin does the same as limitstore.Controller.Begin.
func (c *Controller) Begin(ctx context.Context) (firstFence, lastArrived int64, err error) {
	var number int64
	err = c.Do(ctx, func(t *Table, _ int64) error {
		role := &t.controller
		if role.dispatcher != c.Dispatcher || role.term != c.Term {
			return limitstore.ErrNotController
		}
		role.number++
		number = role.number
		for _, r := range t.keyed {
			if r.waits() {
				lastArrived = int64(r.ID)
			}
		}
		return nil
	})
	if err == nil {
		c.number = number
	}
	return c.number << 32, lastArrived, err
}

// changes runs a statement that does nothing after another Begin.
func (c *Controller) changes(ctx context.Context, f func(t *Table)) error {
	number := c.number
	return c.Do(ctx, func(t *Table, _ int64) error {
		if t.Skip&CheckNumber == 0 && (t.controller.dispatcher != c.Dispatcher || t.controller.number != number) {
			return limitstore.ErrNotController
		}
		f(t)
		return nil
	})
}

// reads runs a statement that changes nothing.
func (c *Controller) reads(ctx context.Context, f func(t *Table, now int64)) error {
	return c.Do(ctx, func(t *Table, now int64) error {
		f(t, now)
		return nil
	})
}

// Limits does the same as limitstore.Controller.Limits.
func (c *Controller) Limits(ctx context.Context) (list []permits.Limit, err error) {
	err = c.reads(ctx, func(t *Table, _ int64) { list = slices.Clone(t.limits) })
	return list, err
}

// Edits does the same as limitstore.Controller.Edits.
func (c *Controller) Edits(ctx context.Context, most int) (edited map[string]*permits.Limit, err error) {
	number := c.number
	err = c.reads(ctx, func(t *Table, _ int64) {
		if t.controller.dispatcher != c.Dispatcher || t.controller.number != number {
			edited = map[string]*permits.Limit{}
			return
		}
		if len(t.edited) <= most {
			edited = make(map[string]*permits.Limit, len(t.edited))
			for key := range t.edited { // order-free: a map
				edited[key] = nil
			}
			for _, l := range t.limits {
				if t.edited[l.Key] {
					edited[l.Key] = &l
				}
			}
		}
		t.edited = nil
	})
	return edited, err
}

// Held does the same as limitstore.Controller.Held.
func (c *Controller) Held(ctx context.Context) (list []limitstore.Held, err error) {
	err = c.reads(ctx, func(t *Table, now int64) {
		for _, r := range t.keyed {
			if r.Fence == 0 {
				continue
			}
			h := limitstore.Held{Permit: permits.Permit{Class: r.class(), Job: r.job(), Fence: max(r.Fence, -r.Fence),
				Dispatcher: cmp.Or(r.Dispatcher, r.AdmittedTo), Started: r.Status == dispatcherd.Running}, Returned: r.Fence < 0}
			if h.Started {
				h.Ago = now - r.claimedAt
			}
			list = append(list, h)
		}
	})
	return list, err
}

// Arrived does the same as limitstore.Controller.Arrived.
func (c *Controller) Arrived(ctx context.Context, after int64, most int) (list []limitstore.Waiting, edited bool, err error) {
	err = c.reads(ctx, func(t *Table, _ int64) {
		edited = len(t.edited) > 0
		for _, r := range t.keyed {
			if r.waits() && int64(r.ID) > after && len(list) < most {
				list = append(list, limitstore.Waiting{Class: r.class(), Job: r.job()})
			}
		}
	})
	return list, edited, err
}

// waiting returns the waiting rows in the order of their classes, and in each class in order.
func (t *Table) waiting() (list []limitstore.Waiting) {
	for _, r := range t.keyed {
		if r.waits() {
			list = append(list, limitstore.Waiting{Class: r.class(), Job: r.job()})
		}
	}
	slices.SortFunc(list, func(a, b limitstore.Waiting) int {
		return cmp.Or(compareClasses(a.Class, b.Class), cmp.Compare(a.RunAt, b.RunAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

func compareClasses(a, b permits.Class) int {
	return cmp.Or(cmp.Compare(a.Keys, b.Keys), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Priority, b.Priority))
}

// Heads does the same as limitstore.Controller.Heads.
func (c *Controller) Heads(ctx context.Context, after permits.Class, most int) (list []limitstore.Waiting, err error) {
	err = c.reads(ctx, func(t *Table, _ int64) {
		last := after
		for _, w := range t.waiting() {
			if len(list) < most && compareClasses(w.Class, last) > 0 {
				list, last = append(list, w), w.Class
			}
		}
	})
	return list, err
}

// Refill does the same as limitstore.Controller.Refill.
func (c *Controller) Refill(ctx context.Context, refills []permits.Refill, most int) (jobs [][]permits.Job, err error) {
	jobs = make([][]permits.Job, len(refills))
	err = c.reads(ctx, func(t *Table, _ int64) {
		all := t.waiting()
		for i := range refills {
			f := &refills[i]
			for _, w := range all {
				later := cmp.Or(cmp.Compare(w.RunAt, f.After.RunAt), cmp.Compare(w.ID, f.After.ID)) > 0
				if later && len(jobs[i]) < most && compareClasses(w.Class, f.Class) == 0 {
					jobs[i] = append(jobs[i], w.Job)
				}
			}
		}
	})
	return jobs, err
}

// Admit does the same as limitstore.Controller.Admit, for all dispatchers at once.
func (c *Controller) Admit(ctx context.Context, list []permits.Permit) (admitted map[int64]dispatcherd.DurationClass, err error) {
	admitted = make(map[int64]dispatcherd.DurationClass, len(list))
	err = c.changes(ctx, func(t *Table) {
		t.commits++
		for i := range list {
			a := &list[i]
			r := t.rows[dispatcherd.JobID(a.ID)]
			if r == nil || r.lock != nil || r.Status != dispatcherd.Pending || r.Fence > 0 {
				continue
			}
			t.observer.Admits(r, list[0].Fence)
			r.Fence, r.AdmittedTo = list[0].Fence, a.Dispatcher
			t.list(r)
			admitted[a.ID] = r.lane().Class
		}
		if len(admitted) > 0 && t.Subscribed(c.Dispatcher) {
			t.observer.Notified()
		}
	})
	return admitted, err
}

// Withdraw does the same as limitstore.Controller.Withdraw.
func (c *Controller) Withdraw(ctx context.Context, list []permits.Permit) (withdrawn map[int64]bool, err error) {
	withdrawn = make(map[int64]bool, len(list))
	err = c.changes(ctx, func(t *Table) {
		for i := range list {
			r := t.rows[dispatcherd.JobID(list[i].ID)]
			if r == nil || r.lock != nil || r.Status != dispatcherd.Pending || r.Fence != list[i].Fence {
				continue
			}
			t.dequeue(r)
			if r.AdmittedTo = 0; list[i].Retry != 0 {
				r.Fence = -max(r.Fence, -r.Fence)
			} else {
				r.Fence = 0
			}
			withdrawn[list[i].ID] = true
		}
	})
	return withdrawn, err
}

// Types does the same as limitstore.Controller.Types.
func (c *Controller) Types(ctx context.Context) (types map[string]limitstore.Type, err error) {
	types = map[string]limitstore.Type{}
	err = c.reads(ctx, func(t *Table, _ int64) {
		for _, id := range t.present {
			d := t.dispatcher(id)
			if !d.holdsLease() {
				continue
			}
			for name, n := range d.capacity { // order-free: one element for each type
				if n > 0 {
					typ := types[name]
					types[name] = limitstore.Type{Slots: typ.Slots + n, Dispatchers: append(typ.Dispatchers, id)}
				}
			}
		}
	})
	return types, err
}

// Unstarted returns no keys: the simulation has no rates.
func (c *Controller) Unstarted(context.Context) ([]string, error) { return nil, nil }

// Starts returns nothing: there are no rates.
func (c *Controller) Starts(context.Context, []string) ([]permits.Start, error) { return nil, nil }

// Confirm does nothing: there are no rates.
func (c *Controller) Confirm(context.Context, []permits.Start) error { return nil }

// Expire does nothing: there are no rates.
func (c *Controller) Expire(context.Context) (more bool, err error) { return false, nil }

// Notify does nothing: the caller notifies.
func (c *Controller) Notify(context.Context) error { return nil }
