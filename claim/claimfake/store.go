package claimfake

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Store is one dispatcher's view of a Table, like a claim.Store.
type Store struct {
	// Lease is how long this dispatcher counts as alive after a heartbeat.
	Lease time.Duration
	// Identity is claim.Config.Identity.
	Identity claim.Identity
	// LoseAnswers is how many of the next claims and finishes are executed and
	// answered with Unknown.
	LoseAnswers atomic.Int32

	table *Table
	me    int32
}

// NewStore returns a store on the table that has not joined.
func NewStore(t *Table) *Store { return &Store{table: t, Lease: claim.DefaultLease} }

// Join is claim.Store.Join.
func (s *Store) Join(context.Context) (int32, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastRun++
	s.me = t.lastRun
	t.dispatchers[s.me] = &dispatcher{identity: s.Identity, beatAt: t.now, lease: s.Lease}
	return s.me, nil
}

// Fetch is claim.Store.Fetch.
func (s *Store) Fetch(_ context.Context, req contract.FetchRequest) contract.FetchResult {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	res := contract.FetchResult{DBNow: t.now.UnixMicro()}
	for i, lane := range req.Lanes {
		var keys []contract.Key
		for id, r := range t.rows {
			key := contract.Key{RunAt: r.RunAt.UnixMicro(), ID: id}
			if r.Status == dispatcherd.Pending && r.Type == lane.Type && r.Priority == lane.Priority && lane.After.Less(key) &&
				(!req.Backfill || key.Less(lane.Before)) &&
				lane.Share.Owns(id) != lane.NonLocal {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, contract.Key.Compare)
		for _, key := range keys[:min(len(keys), lane.Limit)] {
			res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: key})
		}
	}
	return res
}

// Claim is claim.Store.Claim.
func (s *Store) Claim(_ context.Context, req contract.ClaimRequest) contract.ClaimResult {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.alive(s.me) {
		return contract.ClaimResult{Verdict: contract.Refused}
	}
	var won []contract.Won
	for i, id := range req.IDs {
		r := t.rows[id]
		if r == nil || r.Status != dispatcherd.Pending || r.RunAt.After(t.now) {
			continue
		}
		r.Status, r.Dispatcher, r.Token = dispatcherd.Running, s.me, req.Token
		r.Attempt++
		if i < len(req.Sessions) {
			r.Session = req.Sessions[i]
		}
		won = append(won, r.won())
	}
	if s.loseAnswer() {
		return contract.ClaimResult{Verdict: contract.Unknown}
	}
	return contract.ClaimResult{Won: won}
}

func (r *Row) won() contract.Won {
	return contract.Won{ID: r.ID, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Failures: r.Failures,
		Crashes: r.Crashes, Timeout: r.Timeout, Payload: slices.Clone(r.Payload)}
}

func (s *Store) loseAnswer() bool {
	if s.LoseAnswers.Load() <= 0 {
		return false
	}
	s.LoseAnswers.Add(-1)
	return true
}

// Resolve is claim.Store.Resolve.
func (s *Store) Resolve(_ context.Context, req contract.ClaimRequest) contract.ClaimResult {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	var won []contract.Won
	for _, id := range req.IDs {
		if r := t.rows[id]; r != nil && r.Status == dispatcherd.Running && r.Dispatcher == s.me && r.Token == req.Token {
			won = append(won, r.won())
		}
	}
	return contract.ClaimResult{Won: won}
}

// Finish is claim.Store.Finish.
func (s *Store) Finish(_ context.Context, req contract.FinishRequest) contract.FinishResult {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	var stale []dispatcherd.JobID
	for _, item := range req.Items {
		r := t.rows[item.ID]
		switch {
		case r != nil && r.Status == dispatcherd.Running && r.Attempt == item.Attempt && r.Dispatcher == s.me:
			r.end(item, t.now)
			if r.Status.Final() {
				delete(t.cancels, item.ID)
			}
		case r != nil && req.Again && r.Attempt == item.Attempt &&
			(r.Status == dispatcherd.Pending && !item.Outcome.Final() || r.Status.Final() && item.Outcome.Final() && r.Dispatcher == s.me):
		default:
			stale = append(stale, item.ID)
		}
	}
	if s.loseAnswer() {
		return contract.FinishResult{Verdict: contract.Unknown}
	}
	return contract.FinishResult{Stale: stale}
}

// end applies one outcome.
func (r *Row) end(item contract.Finish, now time.Time) {
	switch item.Outcome {
	case contract.Succeeded:
		r.Status, r.Result = dispatcherd.Done, slices.Clone(item.Result)
		return
	case contract.FailedFinal:
		r.Status = dispatcherd.Failed
		r.Failures++
	case contract.Cancelled:
		r.Status = dispatcherd.Cancelled
	case contract.Quarantined:
		r.Status = dispatcherd.Failed
		r.Crashes++
	case contract.Retry:
		r.back()
		r.RunAt = now.Add(max(item.Delay, 0))
		r.Failures++
	case contract.Isolated:
		r.back()
		r.Crashes++
		r.RunAt = now.Add(max(item.Delay, 0))
	case contract.Released:
		r.back()
	case contract.Crashed:
		r.back()
		r.Crashes++
	}
	r.note(item.Error)
}

// Progress is claim.Store.Progress.
func (s *Store) Progress(_ context.Context, items []claim.Progress) error {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range items {
		if r := t.rows[p.ID]; r != nil && r.Status == dispatcherd.Running && r.Attempt == p.Attempt && r.Dispatcher == s.me {
			r.Progress = slices.Clone(p.JSON)
		}
	}
	return nil
}

// Heartbeat is claim.Store.Heartbeat.
func (s *Store) Heartbeat(_ context.Context, capacity map[string]int) (contract.HeartbeatResult, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	res := contract.HeartbeatResult{LeaseLost: true}
	if d := t.dispatchers[s.me]; d != nil && !d.lost && !d.leaving && !d.replaced {
		res.LeaseLost, d.beatAt, d.capacity = false, t.now, capacity
	}
	others := map[string]contract.Others{}
	for id, d := range t.dispatchers {
		if id != s.me && !d.lost && d.beatAt.Add(d.lease).Before(t.now) {
			d.lost, d.armed = true, false
		}
		res.Lost = res.Lost || d.lost
		if id != s.me && t.alive(id) {
			for name, n := range d.capacity {
				if res.OtherCapacity == nil {
					res.OtherCapacity = map[string]int{}
				}
				res.OtherCapacity[name] += n
				o := others[name]
				if id < s.me {
					o.SmallerIDs += n
				} else {
					o.LargerIDs += n
				}
				if n > 0 && (o.Least == 0 || n < o.Least) {
					o.Least = n
				}
				others[name] = o
			}
		}
	}
	res.Shares = map[string]contract.Share{}
	for name, o := range others {
		if s := contract.ShareOf(capacity[name], o); !s.All() {
			res.Shares[name] = s
		}
	}
	for _, id := range t.ordered() {
		r := t.rows[id]
		if r.Status == dispatcherd.Running && t.dispatchers[r.Dispatcher].lost {
			left := t.dispatchers[r.Dispatcher].leaving
			r.back()
			if !left {
				r.Crashes++
				r.note("the dispatcher that ran it was lost")
			}
			res.Released++
		}
		if _, wanted := t.cancels[id]; !wanted {
			continue
		}
		switch {
		case r.Status == dispatcherd.Running && r.Dispatcher == s.me:
			res.Cancels = append(res.Cancels, id)
		case r.Status == dispatcherd.Pending:
			r.Status = dispatcherd.Cancelled
			delete(t.cancels, id)
		case r.Status.Final():
			delete(t.cancels, id)
		}
	}
	return res, nil
}

// DeclareLost is claim.Store.DeclareLost.
func (s *Store) DeclareLost(_ context.Context, predecessor claim.Identity, hold time.Duration) (bool, error) {
	if predecessor.Incarnation == (claim.Incarnation{}) || predecessor.Lock == "" {
		return false, errors.New("claimfake: incarnation or lock is missing")
	}
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	found := false
	for _, d := range t.dispatchers {
		if d.identity == predecessor && !d.lost && !d.leaving && !d.replaced {
			found, d.replaced, d.armed, d.capacity, d.beatAt = true, true, false, nil, t.now
			if hold > 0 {
				d.lease = hold
			} else {
				d.lost = true
			}
		}
	}
	return found, nil
}

// Sweep is claim.Store.Sweep.
func (s *Store) Sweep(context.Context) (int, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	held := map[int32]bool{}
	for _, r := range t.rows {
		held[r.Dispatcher] = held[r.Dispatcher] || r.Status == dispatcherd.Running
	}
	for id, d := range t.dispatchers {
		if d.lost && !held[id] {
			delete(t.dispatchers, id)
		}
	}
	return 0, nil
}

// Leave is claim.Store.Leave.
func (s *Store) Leave(context.Context) (int, error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, r := range t.rows {
		if s.me != 0 && r.Status == dispatcherd.Running && r.Dispatcher == s.me {
			r.back()
			n++
		}
	}
	if d := t.dispatchers[s.me]; d != nil {
		d.lost, d.leaving, d.armed = true, true, false
	}
	s.me = 0
	return n, nil
}

// SetSubscribed is claim.Store.SetSubscribed.
func (s *Store) SetSubscribed(_ context.Context, armed bool) error {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.dispatchers[s.me]
	if d == nil || d.lost {
		return claim.ErrLeaseLost
	}
	d.armed = armed
	return nil
}

// Close does nothing.
func (s *Store) Close() {}
