// Package spawns keeps the requests of workers to insert children until they are answered.
// Each request is sent to Postgres at most once, because a repetition could insert the
// children twice.
package spawns

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Queue contains the requests without an answer. The Core bounds their number. The zero
// value is empty and ready.
type Queue struct {
	open     []*contract.SpawnRequest // those in flight, then those that wait, in order of arrival
	inFlight int
}

// Add appends a request.
func (q *Queue) Add(r *contract.SpawnRequest) { q.open = append(q.open, r) }

// Next returns the next request to be sent, which is then in flight. It returns nil if none
// waits, or if limit requests are in flight.
func (q *Queue) Next(limit int) *contract.SpawnRequest {
	if q.inFlight >= limit || q.inFlight == len(q.open) {
		return nil
	}
	q.inFlight++
	return q.open[q.inFlight-1]
}

// Remove forgets a request in flight. It ignores other requests.
func (q *Queue) Remove(r *contract.SpawnRequest) {
	if i := slices.Index(q.open[:q.inFlight], r); i >= 0 {
		q.open = slices.Delete(q.open, i, i+1)
		q.inFlight--
	}
}

// Len returns the number of requests.
func (q *Queue) Len() int { return len(q.open) }

// Of returns the number of requests of a session.
func (q *Queue) Of(id dispatcherd.SessionID) (n int) {
	for _, r := range q.open {
		if r.Session == id {
			n++
		}
	}
	return n
}
