package claimfake

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Adopt is claim.Store.Adopt.
func (s *Store) Adopt(_ context.Context, req contract.AdoptRequest) contract.AdoptResult {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.alive(s.me) {
		return contract.AdoptResult{Verdict: contract.Refused}
	}
	var taken []contract.Adopted
	for _, p := range req.Jobs {
		r := t.rows[p.ID]
		if r == nil || r.Status != dispatcherd.Running || r.Attempt != p.Attempt {
			continue
		}
		if before := r.Dispatcher == s.me && r.Token == req.Token; !before && (!p.Follows(r.Session) || p.From == 0) {
			continue
		}
		r.Dispatcher, r.Token, r.Session = s.me, req.Token, p.To
		won := r.won()
		won.Payload = nil
		taken = append(taken, contract.Adopted{Won: won, Type: r.Type, Priority: r.Priority, RunAt: r.RunAt.UnixMicro()})
	}
	if s.loseAnswer() {
		return contract.AdoptResult{Verdict: contract.Unknown}
	}
	return contract.AdoptResult{Jobs: taken}
}

// HandOver is claim.Store.HandOver.
func (s *Store) HandOver(_ context.Context, hold time.Duration) error {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handOver(s.me, hold)
	s.me = 0
	return nil
}

// HandOver carries out the hand-over of a dispatcher whose store does not hear of
// it.
func (t *Table) HandOver(id int32, hold time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handOver(id, hold)
}

func (t *Table) handOver(id int32, hold time.Duration) {
	if d := t.dispatchers[id]; d != nil && !d.lost && !d.replaced {
		d.leaving, d.armed, d.capacity, d.beatAt, d.lease = true, false, nil, t.now, hold
	}
}
