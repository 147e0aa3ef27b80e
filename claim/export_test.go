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

// NotesLeft is how many notes claims of single rows leave behind.
const NotesLeft = notesLeft

// Statements are the ones whose plan matters.
func Statements() map[string]string {
	return map[string]string{"fetch": fetchSQL, "jump": jumpSQL, "look": lookSQL, "look-share": lookShareSQL, "alone": aloneSQL, "single": singleSQL, "dense": denseSQL, "stretches": stretchesSQL, "stretches-done": stretchesDoneSQL, "shared": sharedSQL, "resolve": resolveSQL, "done": doneSQL, "dropped": droppedSQL, "dense-done": denseDoneSQL, "ended": endedSQL,
		"back": backSQL, "again": againSQL, "release": releaseSQL, "adopt": adoptSQL, "beat": beatSQL, "settle": settleSQL, "progress": progressSQL}
}

// SessionConfig is that of a store's connection.
func SessionConfig(c Config) (*pgx.ConnConfig, error) { return c.withDefaults().connConfig("test") }

// Stretch is one of those that ids are cut into; its first id has the place Base
// leads to.
type Stretch struct{ Low, High, Base int64 }

// Cut returns the stretches and the number of their places, or nothing if each
// id is descended for.
func Cut(ids []dispatcherd.JobID) (list []Stretch, places int64) {
	var s stretches
	if !s.cut(len(ids), func(i int) dispatcherd.JobID { return ids[i] }) {
		return nil, 0
	}
	for i := range s.low {
		list = append(list, Stretch{s.low[i], s.high[i], s.base[i]})
	}
	return list, s.places
}

// Careful is how many claims the store will yet make with row locks.
func (s *Store) Careful() int {
	<-s.claim.turn
	defer func() { s.claim.turn <- struct{}{} }()
	return s.rivalry
}

// WorthARest lowers the number of dead rows that are worth a rest of autovacuum.
func (s *Store) WorthARest(n int64) { s.vainFrom = n }

// TrustNoRest has the connection of claims asked before each use.
func (s *Store) TrustNoRest() {
	<-s.claim.turn
	defer func() { s.claim.turn <- struct{}{} }()
	s.claim.trusted = 0
}

// FirstToken is below all tokens.
const FirstToken = firstToken

// ReleasePart releases what a lost dispatcher was running, as a beat without time
// does: one portion.
func ReleasePart(ctx context.Context, conn *pgx.Conn, lost int32, from int64) (released int, next int64, err error) {
	return releasePart(ctx, conn, left{lost, contract.Crashed, whyReleased}, from, time.Now().Add(-time.Second))
}
