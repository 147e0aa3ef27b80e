package claim

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// HandOverSQL is the statement of a hand-over: its dispatcher, for how long.
const HandOverSQL = handOverSQL

// Statements are the ones whose plan matters, by name.
func Statements() map[string]string {
	all := map[string]string{"release": releaseSQL, "cancel-pending": cancelPendingSQL, "progress": progressSQL}
	for _, list := range []statements{claimStatements, finishStatements, fetchStatements, adoptStatements, leaseStatements} {
		for _, s := range list {
			all[s.name] = s.sql
		}
	}
	return all
}

// SessionConfig is that of a store's connection.
func SessionConfig(c Config) (*pgx.ConnConfig, error) { return c.withDefaults().connConfig("test") }

// IDRange is one of the ranges in which ids lie; Base leads to the places.
type IDRange struct{ Low, High, Base int64 }

// IDRanges returns the ranges of ids and the number of their places.
func IDRanges(ids []dispatcherd.JobID) (list []IDRange, places int64) {
	r := idRangesOf(ids, integer)
	for i := range r.low {
		list = append(list, IDRange{r.low[i], r.high[i], r.base[i]})
	}
	return list, r.places
}

// Contention is how many claims the store will still make with row locks.
func (s *Store) Contention() int {
	<-s.claim.turn
	defer func() { s.claim.turn <- struct{}{} }()
	return s.contention
}

// SetFutileFrom sets how many dead rows a vacuum must leave to count as futile.
func (s *Store) SetFutileFrom(n int64) { s.futileFrom = n }

// PingClaims makes the store ping the connection of claims before each use.
func (s *Store) PingClaims() {
	<-s.claim.turn
	defer func() { s.claim.turn <- struct{}{} }()
	s.claim.trusted = 0
}

// FirstToken is below all tokens.
const FirstToken = firstToken

// ReleasePart releases the jobs of a lost dispatcher, as a heartbeat without time
// does: one portion.
func ReleasePart(ctx context.Context, conn *pgx.Conn, lost int32, from int64) (released int, next int64, err error) {
	return releasePart(ctx, conn, lostJobs{lost, contract.Crashed, whyReleased}, from, time.Now().Add(-time.Second))
}
