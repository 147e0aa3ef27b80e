package claim

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Records store the claim of each job that this dispatcher runs, and the claims and
// adoptions without an answer. When none of the jobs of a claim runs any more, the row
// of the claim in dispatcherd.claims can be removed. A running row that is not in the
// Records is unheld. So a job must be in the Records from the answer to its claim until
// its end is recorded.
type Records struct {
	of      map[dispatcherd.JobID]int64 // job → token
	running map[int64]int               // token → jobs still running
	late    map[dispatcherd.JobID]int64 // job → token of a renewal that did not take its row, of which a copy may still arrive
	copies  map[int64]bool              // tokens of adoptions of which a copy may still arrive and take rows
	over    []int64                     // tokens whose row can be removed
	asked   map[int64]bool              // tokens without an answer → an outcome is unknown
}

// NewRecords returns Records without claims.
func NewRecords() Records {
	return Records{
		of: map[dispatcherd.JobID]int64{}, running: map[int64]int{}, late: map[dispatcherd.JobID]int64{},
		copies: map[int64]bool{}, asked: map[int64]bool{},
	}
}

// Ask records that a claim or an adoption is sent.
func (r *Records) Ask(token int64) {
	if _, asked := r.asked[token]; !asked {
		r.asked[token] = false
	}
}

// Fail records that a claim or an adoption failed. After an unknown outcome, its rows may
// run until [Records.Add] gets an answer.
func (r *Records) Fail(token int64, v contract.Verdict) {
	unknown, asked := r.asked[token]
	switch {
	case asked && v == contract.Unknown:
		r.asked[token] = true
	case !unknown:
		delete(r.asked, token)
	}
}

// Holds reports whether a row that runs under a token is a job of this dispatcher, or may
// be one.
func (r *Records) Holds(id dispatcherd.JobID, token int64) bool {
	if _, asked := r.asked[token]; asked {
		return true
	}
	of, runs := r.of[id]
	late, renewed := r.late[id]
	return runs && (of == token || renewed && late == token)
}

// Unknown returns the tokens without a running job whose claim or adoption was answered.
func (r *Records) Unknown(tokens []int64) (unknown []int64) {
	for _, token := range tokens {
		if _, asked := r.asked[token]; !asked && r.running[token] == 0 {
			unknown = append(unknown, token)
		}
	}
	return unknown
}

// Add records the jobs that a claim won, in one or more lists. Resolve may repeat an
// earlier answer, so a second call with the same token changes nothing.
func (r *Records) Add(token int64, lists ...[]contract.Won) {
	delete(r.asked, token)
	for _, won := range lists {
		for i := range won {
			r.add(token, won[i].ID)
		}
	}
	if r.running[token] == 0 { // the claim won no job, but its row exists
		r.unused(token)
	}
}

func (r *Records) add(token int64, id dispatcherd.JobID) {
	if of, ok := r.of[id]; ok && of == token {
		return
	}
	r.Remove(id)
	r.of[id] = token
	r.running[token]++
}

// AddAdopted records the jobs that an adoption took. asked and taken are in the order of the ids. A renewed offer is about a
// job that already ran here. If that job has ended meanwhile, it is not added again. If the outcome was unknown before, a copy
// of the statement may arrive later and take rows that were locked.
func (r *Records) AddAdopted(token int64, asked []contract.ResumeOffer, taken []contract.Adopted) {
	won := make([]contract.Won, 0, len(taken))
	unknown := r.asked[token]
	if unknown {
		r.copies[token] = true
	}
	for i := range asked {
		id := asked[i].ID
		_, runs := r.of[id]
		took := len(taken) > 0 && taken[0].ID == id
		if took && (runs || !asked[i].Renewal) {
			won = append(won, taken[0].Won)
		}
		if took {
			taken = taken[1:]
		} else if unknown && runs && asked[i].Renewal {
			r.endLate(id)
			r.late[id] = token
			r.running[token]++
		}
	}
	r.Add(token, won)
}

// Remove records the end of a job, or of its execution here.
func (r *Records) Remove(id dispatcherd.JobID) {
	if token, ok := r.of[id]; ok {
		delete(r.of, id)
		r.endLate(id)
		r.end(token)
	}
}

// endLate forgets that a renewal may take the row of a job.
func (r *Records) endLate(id dispatcherd.JobID) {
	if token, ok := r.late[id]; ok {
		delete(r.late, id)
		r.end(token)
	}
}

// end counts a job of a claim less.
func (r *Records) end(token int64) {
	if r.running[token]--; r.running[token] == 0 {
		r.unused(token)
	}
}

// unused forgets a claim of which no job runs here. If a copy of it may still take rows, its row remains, because these rows
// are found by it. A comparison removes it later.
func (r *Records) unused(token int64) {
	if !r.copies[token] {
		r.over = append(r.over, token)
	}
	delete(r.copies, token)
	delete(r.running, token)
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
func Fold(t contract.Token) int64 {
	return int64(binary.BigEndian.Uint64(t[:8]) ^ binary.BigEndian.Uint64(t[8:]))
}

// forgetSQL removes the records of claims whose jobs have ended: $1 this
// dispatcher, $2 tokens.
const forgetSQL = `DELETE FROM dispatcherd.claims WHERE dispatcher = $1::int AND token = ANY ($2::bigint[])`

// ask notes that a claim or an adoption is sent.
func (s *Store) ask(token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records.Ask(token)
}

// answered notes the verdict of a claim or an adoption. A success was noted with its rows.
func (s *Store) answered(token int64, v contract.Verdict) {
	if v != contract.OK {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records.Fail(token, v)
	}
}

// forgetEnded removes the records of claims whose jobs have ended. A heartbeat removes
// many records at once, because the removal of one record takes a tenth of the time of a
// claim of one job. After the connection was lost forgetEnded removes nothing. A failover
// may have lost the ends, and releaseUnheld finds the rows only by the records.
func (s *Store) forgetEnded(c Session) error {
	s.mu.Lock()
	over := s.records.Removable()
	s.mu.Unlock()
	if len(over) == 0 || s.comparison.conn != c.Conn {
		return nil
	}
	_, err := c.Exec(c, "forget", s.me.Load(), over)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records.Keep(over)
	}
	return err
}

// A row is unheld if it runs under this dispatcher in the table, but this dispatcher does
// not run it. A failover to an asynchronous standby causes this: it may lose the end of an
// attempt. No other dispatcher would release the row, because this one lives. So after each
// loss of the connection, and once per minute, heartbeats compare the running rows with the
// records, and release the rest. They do not compare more often: while a snapshot is held,
// the index entries of removed records remain, and the comparison would read all of them.

// compareEvery is the time between two comparisons on one connection.
const compareEvery = time.Minute

// comparison is a comparison of the running rows with the records.
type comparison struct {
	conn *pgx.Conn // connection of the last heartbeat
	open bool      // heartbeats have not compared all claims
	from int64     // the next portion begins after this token
	next time.Time // when the next comparison begins
}

// WhyUnheld is the error of the attempts that this dispatcher does not run.
const WhyUnheld = "the dispatcher named by the row did not run it: the database may have lost its last changes in a failover"

// releaseUnheld continues or begins a comparison, at most until the given time. It returns
// the rows that were unheld.
func (s *Store) releaseUnheld(c Session, until time.Time) (released []dispatcherd.JobID, err error) {
	if at := &s.comparison; at.conn != c.Conn || !at.open && time.Now().After(at.next) {
		*at = comparison{conn: c.Conn, open: true, from: firstToken, next: time.Now().Add(compareEvery)}
	}
	for s.comparison.open && err == nil && time.Now().Before(until) {
		var some []dispatcherd.JobID
		some, err = s.comparePortion(c, until)
		released = append(released, some...)
	}
	return released, err
}

// comparePortion compares the next portion of the claims. It also removes the records of
// claims of which no row runs. After an error the portion is repeated. Rows that Postgres
// refuses to release are tried again by the next comparison.
func (s *Store) comparePortion(c Session, until time.Time) (released []dispatcherd.JobID, err error) {
	me := s.me.Load()
	p, err := s.readPortion(c, OpHeartbeat, me, s.comparison.from, until)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	unheld := slices.DeleteFunc(p.rows, func(r ownRow) bool { return s.records.Holds(r.ID, r.Token) })
	over := s.records.Unknown(p.tokens)
	s.mu.Unlock()
	switch {
	case len(unheld) > 0:
		released, err = s.releaseRows(c, OpHeartbeat, me, unheld, WhyUnheld, until)
	case len(over) > 0 && p.complete: // otherwise a later comparison removes them
		_, err = c.Exec(c, "forget", me, over)
	}
	if err == nil {
		s.comparison.open = p.more
		if p.more {
			s.comparison.from = p.tokens[len(p.tokens)-1]
		}
	}
	return released, err
}
