package backend

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// A request waits in memory for a slot, and only slots of other dispatchers support its type any more. Then the Core forgets the
// request, and it becomes a row as if it arrived now. Its caller keeps its id, waits on, and gets the events and the answer of the row.

// diverted is a request that becomes a row. It implements ondemand.Caller for the caller of the request.
type diverted struct {
	ondemand.Caller

	b  *Backend
	id dispatcherd.JobID // of the request

	mu    sync.Mutex
	row   dispatcherd.JobID // 0 = it is being inserted
	over  bool              // the caller was answered or has left
	left  bool              // it left before the row was inserted
	timer *time.Timer       // fires at the deadline
}

// divert makes a row of a waiting request. It returns false if that is not possible.
func (c *Requests) divert(id dispatcherd.JobID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	me, waits := c.waiting[id]
	if !waits || me.request == nil {
		return false
	}
	me.row = &diverted{Caller: me.caller, b: c.b, id: id}
	go me.row.insert(*me.request)
	me.request = nil
	c.waiting[id] = me
	return true
}

// insert inserts the row, which the caller then watches.
func (d *diverted) insert(r ondemand.Request) {
	r.Key, r.Elsewhere, r.Durable = "", true, true // this dispatcher has the key
	row, err := d.b.Submit(quota.WithUser(context.Background(), r.User), r, d)
	if err != nil {
		a := ondemand.Answer{Kind: ondemand.Unsupported, Reason: "no slot supports the type any more, and the request could not be queued"}
		switch p := ondemand.Explain(err); p.Type {
		case rest.Stopping.Of("").Type:
			a = ondemand.Answer{Kind: ondemand.Stopping, Reason: p.Detail}
		case rest.DeadlinePassed.Of("").Type:
			a = ondemand.Answer{Kind: ondemand.Late, Reason: p.Detail}
		default:
			a.Reason += " (" + p.Detail + ")"
		}
		d.Answered(a)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.row = row; {
	case d.left:
		go d.b.Abandon(row, d)
	case !d.over:
		d.timer = time.AfterFunc(time.Until(r.Due), func() {
			d.b.Requests.end(d.id, ondemand.Answer{Kind: ondemand.Late, Reason: contract.DeadlinePassed, Via: ondemand.ViaQueue, Row: row})
		})
	}
}

// finish notes that the caller waits no longer. It returns the row, and whether the caller waited before.
func (d *diverted) finish(left bool) (row dispatcherd.JobID, waited bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	waited = !d.over
	d.left, d.over = d.left || left && waited, true
	return d.row, waited
}

// Answered implements ondemand.Caller.
func (d *diverted) Answered(a ondemand.Answer) {
	if row, waited := d.finish(false); waited {
		if a.Row = row; row != 0 {
			a.Via = ondemand.ViaQueue
		}
		d.b.Requests.end(d.id, a)
	}
}

// abandon cancels the row of a request whose caller waits no longer. d may be nil.
func (d *diverted) abandon() {
	if d == nil {
		return
	}
	if row, waited := d.finish(true); waited && row != 0 {
		go d.b.Abandon(row, d)
	}
}
