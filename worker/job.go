package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Job is one execution as its handler sees it. The fields are read-only.
type Job struct {
	ID      dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Slot    int32 // number of the slot, as returned by AddSlots
	Type    string
	Mode    dispatcherd.Mode
	Payload json.RawMessage // nil if the job has none
	Timeout time.Duration   // of this attempt; 0 = none
	Age     time.Duration   // since the job was due, when it was sent

	run *execution
}

// Decode unmarshals the payload into v. The error is permanent: the payload
// will not be better next time.
func (j *Job) Decode(v any) error {
	if err := json.Unmarshal(j.Payload, v); err != nil {
		return Permanent(fmt.Errorf("payload of job %d: %w", j.ID, err))
	}
	return nil
}

// Progress tells how far the job is, in units of the handler's choice; total 0
// means unknown. Like Log and Partial it waits while the connection is
// saturated, and is dropped while there is none.
func (j *Job) Progress(done, total int64, message string) {
	j.run.send(&workerproto.Progress{Execution: j.named(), Done: max(done, 0), Total: max(total, 0), Message: message})
}

// Log appends a line to the job's log.
func (j *Job) Log(level workerproto.Level, format string, args ...any) {
	j.run.send(&workerproto.Log{Execution: j.named(), Level: level, Message: fmt.Sprintf(format, args...)})
}

// Partial hands a piece of output to a caller who waits for it. The error says
// that v cannot be sent: it is no JSON, or too long for a frame.
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
	j.run.send(&workerproto.Partial{Execution: j.named(), Data: raw})
	return nil
}

func (j *Job) named() workerproto.Execution {
	return workerproto.Execution{Job: j.ID, Attempt: j.Attempt}
}

// encode turns a handler's result into JSON that a frame and the database can
// hold; nil stays nil.
func encode(v any) ([]byte, error) {
	var raw []byte
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if raw = bytes.TrimSpace(v); len(raw) == 0 {
			return nil, nil
		}
	default:
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if err := workerproto.CheckJSON(raw); err != nil {
		return nil, errors.Join(errors.New("the result is not JSON that can be stored"), err)
	}
	return raw, nil
}
