package claimfake

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Database is a Table with a lock and a clock. Its methods, and those of its stores, may be
// called from any goroutine.
type Database struct {
	mu    sync.Mutex
	table *Table
}

// NewDatabase returns a database with an empty table.
func NewDatabase() *Database { return &Database{table: NewTable(nil)} }

// Do calls f with the table and the time while no other goroutine uses the table.
func (d *Database) Do(f func(t *Table, now int64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.table, time.Now().UnixMicro())
}

// Store is a Client with the methods of a claim.Store.
type Store struct {
	db       *Database
	client   *Client
	released int // rows that heartbeats have released since the last Release
}

// NewStore returns a store that has not joined.
func NewStore(d *Database, identity claim.Identity) *Store {
	s := &Store{db: d, client: NewClient(d.table)}
	s.client.Identity = identity
	return s
}

// do executes a statement.
func (s *Store) do(begin func(c *Client) *Statement) (done *Statement) {
	s.db.Do(func(_ *Table, now int64) {
		done = begin(s.client).Do(now)
		s.client.Answered(done, done.Verdict)
	})
	return done
}

// Join does the same as claim.Store.Join.
func (s *Store) Join(context.Context) (int32, error) { return s.do((*Client).Join).Joined, nil }

// Fetch does the same as claim.Store.Fetch.
func (s *Store) Fetch(_ context.Context, r contract.FetchRequest) contract.FetchResult {
	return s.do(func(c *Client) *Statement { return c.Fetch(&r) }).Fetched
}

// Claim does the same as claim.Store.Claim.
func (s *Store) Claim(_ context.Context, r contract.ClaimRequest) contract.ClaimResult {
	done := s.do(func(c *Client) *Statement { return c.Claim(&r) })
	done.Claimed.Verdict = done.Verdict
	return done.Claimed
}

// Resolve does the same as claim.Store.Resolve.
func (s *Store) Resolve(_ context.Context, r contract.ClaimRequest) contract.ClaimResult {
	return s.do(func(c *Client) *Statement { return c.Resolve(&r) }).Claimed
}

// LoadPayloads does the same as claim.Store.LoadPayloads.
func (s *Store) LoadPayloads(_ context.Context, r contract.LoadRequest) contract.LoadResult {
	return s.do(func(c *Client) *Statement { return c.LoadPayloads(&r) }).Loaded
}

// Finish does the same as claim.Store.Finish.
func (s *Store) Finish(_ context.Context, r contract.FinishRequest) contract.FinishResult {
	return s.do(func(c *Client) *Statement { return c.Finish(&r) }).Finished
}

// Adopt does the same as claim.Store.Adopt.
func (s *Store) Adopt(_ context.Context, r contract.AdoptRequest) contract.AdoptResult {
	done := s.do(func(c *Client) *Statement { return c.Adopt(&r) })
	done.Adopted.Verdict = done.Verdict
	return done.Adopted
}

// Heartbeat does the same as claim.Store.Heartbeat.
func (s *Store) Heartbeat(_ context.Context, r contract.HeartbeatRequest) (contract.HeartbeatResult, error) {
	done := s.do(func(c *Client) *Statement { return c.Heartbeat(&r) })
	s.released += done.Released
	return done.Heartbeat, nil
}

// Release returns how many rows of lost dispatchers the heartbeats have released since the last call.
func (s *Store) Release(context.Context) (released int, err error) {
	released, s.released = s.released, 0
	return released, nil
}

// Leave does the same as claim.Store.Leave.
func (s *Store) Leave(context.Context) (int, error) { return s.do((*Client).Leave).Released, nil }

// HandOver does the same as claim.Store.HandOver.
func (s *Store) HandOver(_ context.Context, hold time.Duration) error {
	s.do(func(c *Client) *Statement { return c.HandOver(hold) })
	return nil
}

// SetSubscribed does the same as claim.Store.SetSubscribed.
func (s *Store) SetSubscribed(_ context.Context, subscribed bool) error {
	if s.do(func(c *Client) *Statement { return c.SetSubscribed(subscribed) }).Verdict != contract.OK {
		return claim.ErrLeaseLost
	}
	return nil
}

// Progress does the same as claim.Store.Progress.
func (s *Store) Progress(_ context.Context, items []claim.Progress) error {
	s.db.Do(func(t *Table, _ int64) { t.RecordProgress(s.client.me, items) })
	return nil
}

// DeclareLost does the same as claim.Store.DeclareLost.
func (s *Store) DeclareLost(_ context.Context, predecessor claim.Identity, hold, least time.Duration) (found bool, err error) {
	if predecessor.Incarnation == (claim.Incarnation{}) || predecessor.Lock == "" {
		return false, nil
	}
	s.db.Do(func(t *Table, now int64) { found = t.DeclareLost(now, predecessor, hold, least) })
	return found, nil
}

// Sweep does the same as claim.Store.Sweep.
func (s *Store) Sweep(context.Context) (strays int, err error) {
	s.db.Do(func(t *Table, _ int64) { strays = len(t.Sweep()) })
	return strays, nil
}

// Close does nothing.
func (s *Store) Close() {}

// Row returns a copy of a row.
func (d *Database) Row(id dispatcherd.JobID) (r Row, found bool) {
	d.Do(func(t *Table, _ int64) {
		if p := t.Row(id); p != nil {
			r, found = *p, true
			r.since, r.claimedAt = 0, 0
		}
	})
	return r, found
}
