package actor

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// table replaces Postgres. It holds rows and executes each of the few
// statements at once.
type table struct {
	rows  map[dispatcherd.JobID]*row
	lanes map[tableLane][]*row // every row that was ever pending in the lane, in order
	now   int64                // database clock, microseconds
}

type tableLane struct {
	typ      string
	priority dispatcherd.Priority
}

type row struct {
	id         dispatcherd.JobID
	typ        string
	priority   dispatcherd.Priority
	runAt      int64
	status     dispatcherd.Status
	attempt    dispatcherd.Attempt
	tries      int32
	failures   int32
	crashes    int32
	timeout    time.Duration
	dispatcher int
	token      contract.Token
	session    contract.Fingerprint
	locked     bool // locked by another transaction: an adoption skips it
}

func newTable() *table {
	return &table{rows: map[dispatcherd.JobID]*row{}, lanes: map[tableLane][]*row{}, now: 1_000_000_000_000}
}

func (t *table) insert(r row) {
	r.status = dispatcherd.Pending
	if r.tries == 0 {
		r.tries = 3
	}
	t.rows[r.id] = &r
	t.queue(&r)
}

func (r *row) key() contract.Key { return contract.Key{RunAt: r.runAt, ID: r.id} }

// queue adds a row to its lane in order.
func (t *table) queue(r *row) {
	k := tableLane{r.typ, r.priority}
	i, _ := slices.BinarySearchFunc(t.lanes[k], r.key(), func(r *row, key contract.Key) int { return r.key().Compare(key) })
	t.lanes[k] = slices.Insert(t.lanes[k], i, r)
}

// delay moves a row to a later run_at.
func (t *table) delay(r *row, runAt int64) {
	k := tableLane{r.typ, r.priority}
	t.lanes[k] = slices.DeleteFunc(t.lanes[k], func(o *row) bool { return o == r })
	r.runAt = runAt
	t.queue(r)
}

func (t *table) fetch(req *contract.FetchRequest) contract.FetchResult {
	res := contract.FetchResult{DBNow: t.now}
	for i, lane := range req.Lanes {
		n := 0
		for _, r := range t.lanes[tableLane{lane.Type, lane.Priority}] {
			if n < lane.Limit && r.status == dispatcherd.Pending && lane.After.Less(r.key()) && lane.Share.Owns(r.id) != lane.NonLocal &&
				(!req.Backfill || r.key().Less(lane.Before)) {
				res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: r.key()})
				n++
			}
		}
	}
	return res
}

func (t *table) claim(dispatcher int, req *contract.ClaimRequest) contract.ClaimResult {
	for i, id := range req.IDs {
		r := t.rows[id]
		if r == nil || r.status != dispatcherd.Pending || r.runAt > t.now || !slices.Contains(req.Types, r.typ) {
			continue
		}
		r.status, r.dispatcher, r.token = dispatcherd.Running, dispatcher, req.Token
		r.attempt++
		r.session = req.Sessions[i]
	}
	return t.resolve(dispatcher, req)
}

func (t *table) resolve(dispatcher int, req *contract.ClaimRequest) (res contract.ClaimResult) {
	for _, id := range req.IDs {
		if r := t.rows[id]; r != nil && r.status == dispatcherd.Running && r.dispatcher == dispatcher && r.token == req.Token {
			res.Won = append(res.Won, contract.Won{
				ID: id, Attempt: r.attempt, MaxAttempts: r.tries, Failures: r.failures, Crashes: r.crashes,
				Timeout: r.timeout,
			})
		}
	}
	return res
}

func (t *table) adopt(dispatcher int, req *contract.AdoptRequest) (res contract.AdoptResult) {
	for _, p := range req.Jobs {
		r := t.rows[p.ID]
		if r == nil || r.status != dispatcherd.Running || r.attempt != p.Attempt {
			continue
		}
		if !p.Follows(r.session) && (r.dispatcher != dispatcher || r.token != req.Token) {
			continue
		}
		if r.locked {
			res.Busy = append(res.Busy, p.ID)
			continue
		}
		r.dispatcher, r.token, r.session = dispatcher, req.Token, p.To
		res.Jobs = append(res.Jobs, contract.Adopted{
			Won:  contract.Won{ID: r.id, Attempt: r.attempt, MaxAttempts: r.tries, Failures: r.failures, Crashes: r.crashes, Timeout: r.timeout},
			Type: r.typ, Priority: r.priority, RunAt: r.runAt,
		})
	}
	return res
}

func (t *table) finish(dispatcher int, req *contract.FinishRequest) (res contract.FinishResult) {
	for _, f := range req.Items {
		r := t.rows[f.ID]
		if r == nil || r.status != dispatcherd.Running || r.dispatcher != dispatcher || r.attempt != f.Attempt {
			again := req.Again && r != nil && r.dispatcher == dispatcher && r.attempt == f.Attempt
			if !again {
				res.Stale = append(res.Stale, f.ID)
			}
			continue
		}
		switch f.Outcome {
		case contract.Succeeded:
			r.status = dispatcherd.Done
		case contract.Retry:
			r.status = dispatcherd.Pending
			r.failures++
			t.delay(r, t.now+f.Delay.Microseconds())
		case contract.Isolated:
			r.status = dispatcherd.Pending
			r.crashes++
			t.delay(r, t.now+f.Delay.Microseconds())
		case contract.FailedFinal:
			r.status = dispatcherd.Failed
			r.failures++
		case contract.Cancelled:
			r.status = dispatcherd.Cancelled
		case contract.Released:
			r.status = dispatcherd.Pending
		case contract.Crashed:
			r.status = dispatcherd.Pending
			r.crashes++
		case contract.Quarantined:
			r.status = dispatcherd.Failed
			r.crashes++
		}
	}
	return res
}

func (t *table) sorted() []*row {
	var rows []*row
	for _, r := range t.rows {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.id, b.id) })
	return rows
}

// floorMS converts microseconds to whole milliseconds, rounding down.
func floorMS(us int64) int64 { return (us - (us%1000+1000)%1000) / 1000 }
