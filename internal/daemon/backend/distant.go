package backend

import (
	"context"
	"encoding/json"
	"maps"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// distant holds the durable requests that run here although their callers may wait at another dispatcher. This dispatcher writes the
// starts, the reports of the workers and the ends to a table, and notifies the others, which read them. If a notification or a report is
// lost, the dispatcher of a caller finds the end when it next reads the rows of its callers. Rows.mu guards the fields that are not atomic.
type distant struct {
	running map[dispatcherd.JobID]time.Time // until their deadlines, after which no caller waits
	count   atomic.Int64                    // of running
	reports []claim.DistantReport           // to be written
	bytes   int                             // of reports
}

// The bounds of distant. The callers of further requests get no events, and their answers only when the rows are read again.
const (
	MaxDistant = 10_000  // requests that run
	MaxReports = 4 << 20 // bytes that wait to be written
)

// The reports that no worker makes.
const (
	started = "started" // its data are those of the event for callers
	ended   = "ended"
)

// Claimed notes the durable requests among the rows that a claim took.
func (r *Rows) Claimed(rows []contract.Won) {
	for i := range rows {
		if rows[i].Left <= 0 {
			continue
		}
		r.mu.Lock()
		switch {
		case r.watched[rows[i].ID] != nil:
		case len(r.distant.running) >= MaxDistant:
			r.Dropped.Add(1)
		default:
			r.distant.running[rows[i].ID] = time.Now().Add(rows[i].Left)
			r.distant.count.Add(1)
		}
		r.mu.Unlock()
	}
}

// tell has an event of a request told to the other dispatchers, if its callers may wait there.
func (r *Rows) tell(id dispatcherd.JobID, e *ondemand.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &r.distant
	switch _, runs := d.running[id]; {
	case !runs:
		return
	case e.Name == ended:
		delete(d.running, id)
	case d.bytes > MaxReports:
		r.Dropped.Add(1)
		return
	}
	d.bytes += len(e.Data)
	d.reports = append(d.reports, claim.DistantReport{Job: id, Attempt: e.Attempt, Name: e.Name, Data: e.Data})
	if e.Name == started { // it waits for a further event: most jobs end soon, and one statement suffices then
		time.AfterFunc(startsWait, func() { r.wake(contract.DistantRun) })
	} else {
		r.wake(contract.DistantRun)
	}
}

const (
	// startsWait is how long a start waits at most.
	startsWait = 20 * time.Millisecond
	// reportsRest is the time between two steps of a service because of reports. Any session can send a notification.
	reportsRest = 5 * time.Millisecond
	// reportsPatience is how long the report of an end is awaited that was read.
	reportsPatience = 500 * time.Millisecond
)

// Telling returns the service that writes the reports. What fails is not repeated.
func (r *Rows) Telling() background.Service {
	return background.Service{Name: "distant callers", Topics: contract.DistantRun, Rest: reportsRest, Step: r.writeReports}
}

func (r *Rows) writeReports(ctx context.Context, now background.Now) (_ time.Duration, err error) {
	r.mu.Lock()
	d := &r.distant
	// The ends of these were not recorded.
	maps.DeleteFunc(d.running, func(_ dispatcherd.JobID, until time.Time) bool { return now.At.After(until) })
	reports := d.reports
	d.reports, d.bytes = nil, 0
	d.count.Store(int64(len(d.running)))
	r.mu.Unlock()
	if len(reports) > 0 {
		ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
		defer cancel()
		err = claim.Jobs{DB: r.db}.Tell(ctx, reports)
	}
	return time.Minute, err
}

// readReports passes the reports of other dispatchers on to the callers. The rows of callers that leave meanwhile are read no further.
func (r *Rows) readReports(ctx context.Context) error {
	for more := true; more; {
		var ids []dispatcherd.JobID
		var after []int64
		r.mu.Lock()
		for id, w := range r.watched { // order-free: a set
			ids, after = append(ids, id), append(after, w.reported)
		}
		r.mu.Unlock()
		if len(ids) == 0 {
			return nil
		}
		reports, err := claim.Jobs{DB: r.db}.Reports(ctx, ids, after)
		if err != nil {
			return err
		}
		for i := range reports {
			r.report(&reports[i])
		}
		more = len(reports) == claim.MaxReports
	}
	return nil
}

// report passes a report on to the callers of its row.
func (r *Rows) report(t *claim.DistantReport) {
	if t.Name == started {
		var at ondemand.Start
		_ = json.Unmarshal(t.Data, &at) // a dispatcher has written it
		r.started(t.Job, at.Slot, t.Attempt, at.Worker)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watched[t.Job]
	if w == nil {
		return
	}
	w.reported = t.ID
	switch {
	case t.Name == ended:
		w.endsAt = time.Now()
	case t.Name != started && t.Attempt >= w.sent:
		for c := range w.watchers {
			c.Reported(ondemand.Event{Name: t.Name, Attempt: t.Attempt, Data: t.Data})
		}
	}
}
