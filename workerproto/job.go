package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// maxToken is the longest token, in bytes.
const maxToken = 64

// Job starts an execution on a free slot.
//
//	{"op":"job","job":42,"attempt":1,"session":"9f…","token":"K3ZQ7X2ABCDEFGHJ-1","slot":0,"type":"pdf",
//	 "mode":"queued","payload":{"page":1},"timeout_ms":60000,"age_ms":1500,
//	 "traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
type Job struct {
	sentByDispatcher
	Execution

	Token   string // differs for each job frame of all dispatchers, at most 64 bytes; "" = none
	Slot    int32  // the worker's number of the slot
	Type    string
	Mode    dispatcherd.Mode
	Payload []byte // JSON; nil if there is none
	// Of a job with keys: for each key it increases across all hosts; jobs that were admitted together share it;
	// 0 = the job has no keys.
	Fence   int64
	Timeout time.Duration // limit of this attempt; 0 = none
	Age     time.Duration // since the job was due

	Traceparent string // W3C trace context of the producer; "" = none
}

// size returns an upper bound of the frame's length in bytes. It includes escapes in the
// type.
func (m *Job) size() int {
	return len(m.Payload) + 6*(len(m.Type)+len(m.Token)+len(m.Traceparent)) + 256
}

func (m *Job) members(c *codec) {
	m.begin(c, "job")
	c.text("token", &m.Token, maxToken, optional)
	integer(c, "slot", &m.Slot, always)
	symbol(c, "type", &m.Type, unbounded, required)
	mode := m.Mode.String()
	if symbol(c, "mode", &mode, maxSymbol, always) {
		switch mode {
		case "", queued:
			m.Mode = dispatcherd.Queued
		case "on_demand":
			m.Mode = dispatcherd.OnDemand
		default:
			c.bad("field \"mode\" must be queued or on_demand")
		}
	}
	c.raw("payload", &m.Payload, optional)
	integer(c, "fence", &m.Fence, optional)
	c.millis("timeout_ms", &m.Timeout, optional)
	c.millis("age_ms", &m.Age, optional)
	c.text("traceparent", &m.Traceparent, unbounded, optional)
}

const queued = "queued"
