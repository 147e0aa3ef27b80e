package claim

import (
	"context"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Records store the claim of each running job. When none of the jobs of a claim runs
// any more, the row of the claim in dispatcherd.claims can be removed. Without
// Records that table would grow without bound. Nothing else depends on Records.
type Records struct {
	of      map[dispatcherd.JobID]int64 // job → token
	running map[int64]int               // token → jobs still running
	over    []int64                     // tokens whose row can be removed
}

// NewRecords returns Records without claims.
func NewRecords() Records {
	return Records{of: map[dispatcherd.JobID]int64{}, running: map[int64]int{}}
}

// Add records the jobs that a claim won. Resolve may repeat an earlier answer, so a
// second call with the same token changes nothing.
func (r *Records) Add(token int64, won []contract.Won) {
	for i := range won {
		if of, ok := r.of[won[i].ID]; ok && of == token {
			continue
		}
		r.Remove(won[i].ID)
		r.of[won[i].ID] = token
		r.running[token]++
	}
	if r.running[token] == 0 {
		delete(r.running, token)
		r.over = append(r.over, token) // the claim won no job, but its row exists
	}
}

// AddAdopted records the jobs that an adoption took. A renewed offer is about a job
// that already ran here. If that job has ended meanwhile, it is not added again.
func (r *Records) AddAdopted(token int64, asked []contract.ResumeOffer, taken []contract.Adopted) {
	won := make([]contract.Won, 0, len(taken))
	for i := range taken {
		for len(asked) > 0 && asked[0].ID < taken[i].ID {
			asked = asked[1:]
		}
		_, runs := r.of[taken[i].ID]
		if own := len(asked) > 0 && asked[0].ID == taken[i].ID && asked[0].Renewal; !own || runs {
			won = append(won, taken[i].Won)
		}
	}
	r.Add(token, won)
}

// Remove records the end of a job, or of its execution here.
func (r *Records) Remove(id dispatcherd.JobID) {
	token, ok := r.of[id]
	if !ok {
		return
	}
	delete(r.of, id)
	r.running[token]--
	if r.running[token] == 0 {
		delete(r.running, token)
		r.over = append(r.over, token)
	}
}

// Removable returns the tokens of claims whose rows can be removed, and forgets them.
func (r *Records) Removable() []int64 {
	over := r.over
	r.over = nil
	return over
}

// Keep adds tokens of Removable again, because their rows could not be removed.
func (r *Records) Keep(tokens []int64) { r.over = append(r.over, tokens...) }

// Fold reduces a token to the 64 bits that the table stores. Within one run of a
// dispatcher the results are unique if the tokens are random, or consist of a nonce
// and a counter.
func Fold(t contract.Token) int64 { return readInt8(t[:8]) ^ readInt8(t[8:]) }

// forgetSQL removes the records of claims whose jobs have ended: $1 this
// dispatcher, $2 tokens.
const forgetSQL = `DELETE FROM dispatcherd.claims WHERE dispatcher = $1::int AND token = ANY ($2::bigint[])`

// forgetEnded removes the records of claims whose jobs have ended. A heartbeat does
// this for many records at once. For a single record the removal would take a tenth
// of the time of the claim of a single job.
func (s *Store) forgetEnded(ctx context.Context, conn *pgx.Conn) error {
	s.mu.Lock()
	over := s.records.Removable()
	s.mu.Unlock()
	if len(over) == 0 {
		return nil
	}
	_, err := conn.Exec(ctx, "forget", s.me.Load(), over)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records.Keep(over)
	}
	return err
}
