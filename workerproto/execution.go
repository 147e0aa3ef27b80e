package workerproto

import "github.com/dispatcherd/dispatcherd"

// Execution identifies one execution of a job in one session. Every frame about a
// job contains it: the attempt fences the row in Postgres, the session nonce fences
// the connection. On the wire: "job", "attempt", "session".
type Execution struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Session string // nonce of the session, 32 hexadecimal digits
}

// named is implemented by all frames about a job.
type named interface{ execution() *Execution }

func (e *Execution) execution() *Execution { return e }

func (e *Execution) appendFields(dst []byte) []byte {
	dst = appendInt(append(dst, `,"job":`...), int64(e.Job))
	dst = appendInt(append(dst, `,"attempt":`...), int64(e.Attempt))
	return appendString(append(dst, `,"session":`...), e.Session)
}

// member reads one member of the frame if it belongs to the Execution.
func (e *Execution) member(key []byte, s *scanner) bool {
	switch string(key) {
	case "job":
		e.Job = dispatcherd.JobID(s.integer(minInt64, maxInt64))
	case "attempt":
		e.Attempt = dispatcherd.Attempt(s.integer(0, maxInt32))
	case "session":
		e.Session = s.symbol(maxNonce)
	default:
		return false
	}
	return true
}

func (e *Execution) check(s *scanner) {
	s.require(e.Job != 0, "job")
	s.require(e.Attempt > 0, "attempt")
	s.require(e.Session != "", "session")
}
