package dispatcherd

import "time"

// Mark is the fingerprint of a session's nonce. A claim notes for each job the
// mark of the session that it is for. Whoever presents the job later, to this
// dispatcher or to another one, must know the nonce behind it; from the note
// alone nobody can tell the nonce. Zero is no session.
//
// A mark also says how often its owner presented the job: the lowest 16 bits of
// the fingerprint make room for that number (see [Mark.Nth]).
type Mark int64

// MaxPresentations is how often a worker can present one execution so that its
// presentations can still be told apart.
const MaxPresentations = 1<<orderBits - 2

const (
	orderBits = 16
	orderMask = 1<<orderBits - 1
)

// Nth is the mark that an n-th presentation leaves in the note. It is never the
// fingerprint itself, which is what a claim notes, and what is left by workers that
// do not count (n = 0). Greater n, up to MaxPresentations, make greater numbers.
func (m Mark) Nth(n int) Mark {
	if n <= 0 {
		return m
	}
	order := Mark(min(n, MaxPresentations))
	if order >= m&orderMask {
		order++
	}
	return m&^orderMask | order
}

// Overtakes reports whether a presentation that leaves m is by the same session and
// later than the one that left old. One that does not count overtakes nothing.
func (m Mark) Overtakes(old, from Mark) bool {
	return m != from && m>>orderBits == from>>orderBits && old>>orderBits == from>>orderBits && old&orderMask < m&orderMask
}

// Presented is an execution that a worker brings along from an earlier session.
type Presented struct {
	ID      JobID
	Attempt Attempt
	From    Mark // of the session in which it began
	To      Mark // noted from now on: From.Nth, or the session that the job was sent to if it was claimed for another
	Own     bool // it runs here already, and its note is to be renewed
}

// Follows reports whether a row whose note bears a mark may be taken: the mark of
// the session in which the job began, or that of an earlier presentation. A request
// that arrives late finds the mark of the presentation that has overtaken it.
func (p *Presented) Follows(noted Mark) bool {
	return noted == p.From || p.To.Overtakes(noted, p.From)
}

// AdoptRequest asks to take over rows that still run under the presented
// attempts, whoever their dispatcher is: it may be dead, cut off, or alive.
// Its own later words about them are stale. The same request may be sent
// again: what an earlier copy took counts as taken.
type AdoptRequest struct {
	Token Token
	Jobs  []Presented // ascending by ID, no duplicates, all positive
}

// Adopted is a row that was taken over.
type Adopted struct {
	Won      // without payload
	Type     string
	Priority Priority
	RunAt    int64         // microseconds since the Unix epoch, database clock
	Ran      time.Duration // since the attempt was claimed, ≥ 0
}

// AdoptResult answers an AdoptRequest. With Verdict OK the presented jobs that
// are in neither list are not to be had: the attempt is over, it was never
// handed to that session, or a later presentation came first. Those in Busy are locked by somebody and may be asked
// about in another request. With another Verdict this one must be sent again.
type AdoptResult struct {
	Verdict Verdict
	Jobs    []Adopted // ascending by ID
	Busy    []JobID   // ascending
}
