package workerproto

import (
	"math"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// maxToken is the longest token, in bytes.
const maxToken = 64

// Job starts an execution on a free slot.
//
//	{"op":"job","job":42,"attempt":1,"session":"9f…","token":"K3ZQ7X2ABCDEFGHJ-1","slot":0,"type":"pdf",
//	 "mode":"queued","payload":{"page":1},"timeout_ms":60000,"age_ms":1500}
type Job struct {
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
}

func (*Job) fromDispatcher() {}

// size returns an upper bound of the frame's length in bytes. It includes escapes in the
// type.
func (m *Job) size() int { return len(m.Payload) + 6*(len(m.Type)+len(m.Token)) + 256 }

func (m *Job) members(c *codec) {
	m.begin(c, "job")
	if c.task == encoding {
		c.out = m.appendTo(c.out)
		return
	}
	c.text("token", &m.Token, maxToken, optional)
	integer(c, "slot", &m.Slot, 0, maxInt32, always)
	symbol(c, "type", &m.Type, unbounded, required)
	var mode string
	if symbol(c, "mode", &mode, maxSymbol, optional) {
		m.setMode(c, mode)
	}
	c.raw("payload", &m.Payload, optional)
	integer(c, "fence", &m.Fence, 0, math.MaxInt64, optional)
	c.millis("timeout_ms", &m.Timeout, optional)
	c.millis("age_ms", &m.Age, optional)
}

// appendTo is the encoding part of members. It does not use members.go, because half
// of all frames are jobs: encoding takes 125 ns instead of 170.
func (m *Job) appendTo(dst []byte) []byte {
	if m.Token != "" {
		dst = appendString(append(dst, `,"token":`...), m.Token)
	}
	dst = strconv.AppendInt(append(dst, `,"slot":`...), int64(m.Slot), 10)
	dst = appendString(append(dst, `,"type":`...), m.Type)
	dst = append(append(append(dst, `,"mode":"`...), m.Mode.String()...), '"')
	if len(m.Payload) > 0 {
		dst = appendRaw(append(dst, `,"payload":`...), m.Payload)
	}
	if m.Fence > 0 {
		dst = strconv.AppendInt(append(dst, `,"fence":`...), m.Fence, 10)
	}
	if ms := m.Timeout.Milliseconds(); ms > 0 {
		dst = strconv.AppendInt(append(dst, `,"timeout_ms":`...), ms, 10)
	}
	if ms := m.Age.Milliseconds(); ms > 0 {
		dst = strconv.AppendInt(append(dst, `,"age_ms":`...), ms, 10)
	}
	return dst
}

func (m *Job) setMode(c *codec, mode string) {
	switch mode {
	case "", "queued":
		m.Mode = dispatcherd.Queued
	case "on_demand":
		m.Mode = dispatcherd.OnDemand
	default:
		c.bad("field \"mode\" must be queued or on_demand")
	}
}
