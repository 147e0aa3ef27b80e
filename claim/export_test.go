package claim

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// HandOverSQL is the statement of a hand-over. Its parameters are the
// dispatcher and the duration.
const HandOverSQL = handOverSQL

// Columns of a job that move with its row, as in the statements.
const (
	KeptColumns = keptColumns
	EndColumns  = endColumns
)

// Statements returns the statements whose plans are tested, by name.
func Statements() map[string]string {
	all := map[string]string{
		"load":        loadSQL,
		"release":     releaseSQL,
		"portion":     portionSQL,
		"own-rows":    ownRowsSQL,
		"locked":      lockedSQL,
		"progress":    progressSQL,
		"asked":       askedSQL,
		"cancel-idle": cancelIdleSQL,
	}
	for _, list := range []statements{claimStatements, finishStatements, fetchStatements, adoptStatements, leaseStatements} {
		for _, s := range list {
			all[s.name] = s.sql
		}
	}
	return all
}

// SessionConfig returns the connection settings of a store.
func SessionConfig(c Config) (*pgx.ConnConfig, error) { return c.WithDefaults().connConfig("test") }

// IDRange is a range of ids. Base is subtracted from an id of the range to compute its
// place in the request.
type IDRange struct{ Low, High, Base int64 }

// IDRanges returns the ranges of ids and the number of places in the request.
func IDRanges(ids []dispatcherd.JobID) (list []IDRange, places int64) {
	r := idRangesOf(ids, func(id *dispatcherd.JobID) int64 { return int64(*id) })
	for i := range r.low {
		list = append(list, IDRange{r.low[i], r.high[i], r.base[i]})
	}
	return list, r.places
}

// Contention returns the number of further claims that the store will make with
// row locks.
func (s *Store) Contention() int { return int(s.contention.Load()) }

// PingClaims makes the store ping each connection of claims before each use.
func (s *Store) PingClaims() {
	for _, l := range s.claim {
		<-l.turn
		l.trusted = 0
		l.turn <- struct{}{}
	}
}

// CompareAgain makes the next heartbeat look for unheld rows.
func (s *Store) CompareAgain() { s.comparison.next = time.Time{} }

// ComparePortion begins a comparison and returns the rows that its first portion released.
func (s *Store) ComparePortion(t testing.TB) (released []dispatcherd.JobID) {
	t.Helper()
	_ = s.lease.do(
		t.Context(),
		OpHeartbeat,
		func(c Session) (int, error) { return 0, c.Ping(c) },
	) // it may be lost
	err := s.lease.do(t.Context(), OpHeartbeat, func(c Session) (_ int, err error) {
		s.comparison = comparison{conn: c.Conn, open: true, from: firstToken}
		released, err = s.comparePortion(c, time.Now().Add(time.Minute))
		return 0, err
	})
	require.NoError(t, err)
	return released
}

// OnSweep runs a function with the connection of the sweep.
func (s *Store) OnSweep(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	return s.sweep.do(ctx, OpSweep, func(c Session) (int, error) { return 0, f(c, c.Conn) })
}

// FirstToken is below all tokens.
const FirstToken = firstToken

// KeepOne keeps the partitions of one status, and those of more days ahead.
func (s *Store) KeepOne(t testing.TB, status string, ahead int, keep time.Duration) (k Kept) {
	t.Helper()
	require.NoError(t, s.keepPartitions(t.Context(), status, ahead, keep, true, &k))
	return k
}

// SetCountSteps bounds the work of one portion of CountPending.
func (s *Store) SetCountSteps(n int64) { s.countSteps = n }

// EndPauses ends the pauses of all rows and lanes that statements leave out.
func (s *Store) EndPauses() { clear(s.refusals.list) }

// NewSpan returns the end of the partition that is to be created for a day.
func NewSpan(at time.Time, keep time.Duration, days, untils []time.Time) (until time.Time, needed bool) {
	return newSpan(at, spanOf(keep), days, untils)
}
