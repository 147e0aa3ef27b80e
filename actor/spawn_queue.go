package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// spawnQueue keeps the requests of workers to insert children until they are answered. The Core bounds their number.
// While a user has all statements in flight but one, the requests of other users overtake its own: a statement may wait for a lock
// that the user itself holds. Each request is sent to Postgres at most once, because a repetition could insert the
// children twice. The zero value is empty and ready.
type spawnQueue struct {
	open     []*contract.SpawnRequest // those in flight, then those that wait, in order of arrival
	inFlight int
}

// add appends a request.
func (q *spawnQueue) add(r *contract.SpawnRequest) { q.open = append(q.open, r) }

// next returns the next request to be sent, which is then in flight. It returns nil if limit requests are in flight, or
// if all users of the requests that wait have all of them but one.
func (q *spawnQueue) next(limit int) *contract.SpawnRequest {
	for i := q.inFlight; i < len(q.open) && q.inFlight < limit; i++ {
		r := q.open[i]
		if q.sentFor(r.User) < max(1, limit-1) {
			q.open = slices.Insert(slices.Delete(q.open, i, i+1), q.inFlight, r)
			q.inFlight++
			return r
		}
	}
	return nil
}

// sentFor returns the number of requests of a user that are in flight.
func (q *spawnQueue) sentFor(user string) (n int) {
	for _, r := range q.open[:q.inFlight] {
		if r.User == user {
			n++
		}
	}
	return n
}

// remove forgets a request in flight. It returns false for other requests, which it ignores.
func (q *spawnQueue) remove(r *contract.SpawnRequest) bool {
	i := slices.Index(q.open[:q.inFlight], r)
	if i >= 0 {
		q.open = slices.Delete(q.open, i, i+1)
		q.inFlight--
	}
	return i >= 0
}

// of returns the number of requests of a session.
func (q *spawnQueue) of(id dispatcherd.SessionID) (n int) {
	for _, r := range q.open {
		if r.Session == id {
			n++
		}
	}
	return n
}
