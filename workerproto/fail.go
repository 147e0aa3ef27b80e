package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Fail ends an execution with a failure of the job. The dispatcher retries the job
// if it has attempts left and the failure is not Permanent. A positive RetryAfter
// replaces the dispatcher's backoff.
//
//	{"op":"fail","job":42,"attempt":1,"session":"9f…","error":"no such file","retry":false}
//	{"op":"fail","job":42,"attempt":2,"session":"9f…","error":"busy","retry_after_ms":5000}
type Fail struct {
	sentByWorker
	Execution

	Error      string        // cut to dispatcherd.MaxErrorLength bytes
	Permanent  bool          // "retry":false on the wire; without "retry" the failure is not permanent
	RetryAfter time.Duration // ≥ 0, whole milliseconds on the wire, at most a year
}

func (m *Fail) members(c *codec) {
	retry := !m.Permanent
	m.begin(c, "fail")
	c.text("error", &m.Error, dispatcherd.MaxErrorLength, always)
	if c.boolean("retry", &retry, true, optional) {
		m.Permanent = !retry
	}
	c.millis("retry_after_ms", &m.RetryAfter, optional)
}
