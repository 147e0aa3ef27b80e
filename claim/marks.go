package claim

import (
	"context"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// marks remember which claim each running job came from, so that a claim's row
// in dispatcherd.claims is removed once none of its jobs runs any more. They
// are bookkeeping only: without them that table would grow, nothing else.
type marks struct {
	of      map[dispatcherd.JobID]int64 // job → token
	running map[int64]int               // token → jobs still running
	over    []int64                     // tokens whose row can go
}

func newMarks() marks {
	return marks{of: map[dispatcherd.JobID]int64{}, running: map[int64]int{}}
}

// add notes what a claim won. It may be told twice: an answer that arrived in
// doubt is resolved, and says the same again.
func (m *marks) add(token int64, won []contract.Won) {
	for i := range won {
		if of, ok := m.of[won[i].ID]; ok && of == token {
			continue
		}
		m.remove(won[i].ID)
		m.of[won[i].ID] = token
		m.running[token]++
	}
	if m.running[token] == 0 {
		delete(m.running, token)
		m.over = append(m.over, token) // its note names what it did not get
	}
}

// adopted notes what an adoption took. A job that ran here already may have ended
// since, and be removed: then its new note is not kept for it.
func (m *marks) adopted(token int64, asked []contract.ResumeOffer, taken []contract.Adopted) {
	won := make([]contract.Won, 0, len(taken))
	for i := range taken {
		for len(asked) > 0 && asked[0].ID < taken[i].ID {
			asked = asked[1:]
		}
		_, runs := m.of[taken[i].ID]
		if own := len(asked) > 0 && asked[0].ID == taken[i].ID && asked[0].Renewal; !own || runs {
			won = append(won, taken[i].Won)
		}
	}
	m.add(token, won)
}

func (m *marks) remove(id dispatcherd.JobID) {
	token, ok := m.of[id]
	if !ok {
		return
	}
	delete(m.of, id)
	m.running[token]--
	if m.running[token] == 0 {
		delete(m.running, token)
		m.over = append(m.over, token)
	}
}

// fold makes the 64 bits that the table keeps of a token. Within one run of a
// dispatcher tokens stay distinct as long as they are random or a nonce beside
// a counter.
func fold(t contract.Token) int64 { return readInt8(t[:8]) ^ readInt8(t[8:]) }

// forgetSQL removes the records of claims whose jobs have ended: $1 this
// dispatcher, $2 tokens.
const forgetSQL = `DELETE FROM dispatcherd.claims WHERE dispatcher = $1::int AND token = ANY ($2::bigint[])`

// forgetEnded removes the records of claims whose jobs have ended. It is part of a
// heartbeat: to remove a record would cost the claim of a single job a tenth of
// its time.
func (s *Store) forgetEnded(ctx context.Context, conn *pgx.Conn) error {
	s.mu.Lock()
	over := s.marks.over
	s.marks.over = nil
	s.mu.Unlock()
	if len(over) == 0 {
		return nil
	}
	_, err := conn.Exec(ctx, "forget", s.me.Load(), over)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.marks.over = append(s.marks.over, over...)
	}
	return err
}
