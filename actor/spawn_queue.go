package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// spawnQueue keeps the requests of workers to insert children until they are answered. The Core bounds their number.
// Each request is sent to Postgres at most once, because a repetition could insert the
// children twice. The zero value is empty and ready.
type spawnQueue struct {
	open     []*contract.SpawnRequest // those in flight, then those that wait, in order of arrival
	inFlight int
}

// add appends a request.
func (q *spawnQueue) add(r *contract.SpawnRequest) { q.open = append(q.open, r) }

// next returns the next request to be sent, which is then in flight. It returns nil if none
// waits, or if limit requests are in flight.
func (q *spawnQueue) next(limit int) *contract.SpawnRequest {
	if q.inFlight >= limit || q.inFlight == len(q.open) {
		return nil
	}
	q.inFlight++
	return q.open[q.inFlight-1]
}

// remove forgets a request in flight. It ignores other requests.
func (q *spawnQueue) remove(r *contract.SpawnRequest) {
	if i := slices.Index(q.open[:q.inFlight], r); i >= 0 {
		q.open = slices.Delete(q.open, i, i+1)
		q.inFlight--
	}
}

// size returns the number of requests.
func (q *spawnQueue) size() int { return len(q.open) }

// of returns the number of requests of a session.
func (q *spawnQueue) of(id dispatcherd.SessionID) (n int) {
	for _, r := range q.open {
		if r.Session == id {
			n++
		}
	}
	return n
}
