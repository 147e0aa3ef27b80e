package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Job is one execution, as passed to its handler. The fields are read-only.
type Job struct {
	ID      dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Token   string // differs for each execution, also after a failover or a restore that lost changes, unlike ID and Attempt
	Slot    int32  // number of the slot, as returned by AddSlots
	Type    string
	Mode    dispatcherd.Mode
	Payload json.RawMessage // nil if the job has none
	// Of a job with keys: for each key it increases across all hosts; jobs that were admitted together share it;
	// 0 = the job has no keys.
	Fence   int64
	Timeout time.Duration // of this attempt; 0 = none
	Age     time.Duration // from the time the job was due until it was sent
	// The W3C trace context of the producer, for the spans of the handler; "" = none.
	Traceparent string

	run *execution
}

// Decode unmarshals the payload into v. The error is permanent, because the
// payload is the same at each attempt.
func (j *Job) Decode(v any) error {
	if err := json.Unmarshal(j.Payload, v); err != nil {
		return Permanent(fmt.Errorf("payload of job %d: %w", j.ID, err))
	}
	return nil
}

// Progress reports how much of the job is done, in units of the handler's choice;
// total 0 means unknown. Progress, Log and Partial wait while the outbox is full. They
// send nothing while there is no connection.
func (j *Job) Progress(done, total int64, message string) {
	j.run.send(&workerproto.Progress{Execution: j.execution(), Done: max(done, 0), Total: max(total, 0), Message: message})
}

// Log appends a line to the job's log.
func (j *Job) Log(level workerproto.Level, format string, args ...any) {
	j.run.send(&workerproto.Log{Execution: j.execution(), Level: level, Message: fmt.Sprintf(format, args...)})
}

// Partial sends a piece of output, encoded like a result, to a waiting caller. It
// returns an error if v cannot be encoded or is too long for a frame.
func (j *Job) Partial(v any) error {
	raw, err := encode(v)
	if err != nil {
		return err
	}
	if raw == nil {
		raw = []byte("null")
	}
	if !j.run.fits(raw) {
		return fmt.Errorf("a partial output of %d bytes is too long for a frame", len(raw))
	}
	j.run.send(&workerproto.Partial{Execution: j.execution(), Data: raw})
	return nil
}

// execution returns the identity of the execution without the session, which is set
// when a frame is sent.
func (j *Job) execution() workerproto.Execution {
	return workerproto.Execution{Job: j.ID, Attempt: j.Attempt}
}

// encode encodes a value of a handler as JSON that a frame can contain and Postgres can
// store. A []byte must be JSON already. encode copies it, because the handler may use it
// again before the frame is written. encode returns nil for nil, and an error if a method of
// the value panics.
func encode(v any) (raw []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			raw, err = nil, fmt.Errorf("encoding a value of type %T: %w", v, panicError(p))
		}
	}()
	if text, ok := v.([]byte); ok { // json.Marshal would encode it as base64
		v = json.RawMessage(text)
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if raw = bytes.Clone(bytes.TrimSpace(v)); len(raw) == 0 {
			return nil, nil
		}
	default:
		if raw, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if err := workerproto.CheckJSON(raw); err != nil {
		return nil, fmt.Errorf("the result is not JSON that can be stored: %w", err)
	}
	return raw, nil
}
