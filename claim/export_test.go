package claim

import "github.com/jackc/pgx/v5"

// HandOverSQL is the statement of a hand-over: its dispatcher, for how long.
const HandOverSQL = handOverSQL

// NotesLeft is how many notes claims of single rows leave behind.
const NotesLeft = notesLeft

// Statements are the ones whose plan matters.
func Statements() map[string]string {
	return map[string]string{"fetch": fetchSQL, "look": lookSQL, "look-share": lookShareSQL, "alone": aloneSQL, "single": singleSQL, "dense": denseSQL, "shared": sharedSQL, "resolve": resolveSQL, "done": doneSQL, "dense-done": denseDoneSQL, "ended": endedSQL,
		"back": backSQL, "release": releaseSQL, "adopt": adoptSQL, "beat": beatSQL, "settle": settleSQL, "progress": progressSQL}
}

// SessionConfig is that of a store's connection.
func SessionConfig(c Config) (*pgx.ConnConfig, error) { return c.withDefaults().connConfig("test") }

// Careful is how many claims the store will yet make with row locks.
func (s *Store) Careful() int {
	<-s.claim.turn
	defer func() { s.claim.turn <- struct{}{} }()
	return s.rivalry
}
