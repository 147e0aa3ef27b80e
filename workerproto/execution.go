package workerproto

import "github.com/dispatcherd/dispatcherd"

// Execution identifies one execution of a job in one session. Every frame about a
// job contains one. The attempt fences the row in Postgres. The session nonce fences
// the connection. The members on the wire are "job", "attempt" and "session".
type Execution struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Session string // nonce of the session, 32 hexadecimal digits; "" in a frame to be sent: that of its connection
}

// named is implemented by all frames about a job.
type named interface{ execution() *Execution }

func (e *Execution) execution() *Execution { return e }

func (e *Execution) members(c *codec) {
	number(c, "job", &e.Job, anyNumber, required)
	integer(c, "attempt", &e.Attempt, required)
	session := &e.Session
	if c.task == encoding && *session == "" {
		session = &c.session
	}
	symbol(c, "session", session, maxNonce, required)
}

// begin lists the members that every frame about a job begins with.
func (e *Execution) begin(c *codec, op string) {
	c.op(op)
	e.members(c)
}
