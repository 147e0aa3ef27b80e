package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Child is a job that a running job inserts. Zero values mean the defaults of the table.
type Child struct {
	Type string `json:"type"`
	// Payload is encoded as JSON; a []byte or json.RawMessage must be JSON and is inserted unchanged; nil = {}.
	Payload     any                  `json:"-"`
	Priority    dispatcherd.Priority `json:"priority,omitempty"`
	RunAt       time.Time            `json:"run_at,omitzero"`        // zero = now, by the database clock
	MaxAttempts int                  `json:"max_attempts,omitempty"` // it fails for good after this many failures; 0 = as its type says
	Backoff     string               `json:"backoff,omitempty"`      // its waits, as in docs/how-to/retries.md; "" = as its type says
	Timeout     time.Duration        `json:"-"`                      // limit of one attempt; rounded up to milliseconds; 0 = that of the type
	Expected    time.Duration        `json:"-"`                      // probable duration; rounded up to milliseconds; 0 = unknown
	Keys        string               `json:"keys,omitempty"`         // up to four words KEY, KEY*COST or KEY*all
	// UniqueKey is unique among pending and running jobs. While a job has it, a spawn with the
	// same key is refused, so that a spawn with an unknown outcome can be repeated; "" = none.
	UniqueKey   string `json:"unique_key,omitempty"`
	Traceparent string `json:"traceparent,omitempty"` // W3C trace context; "" = that of the parent
}

// SpawnError says why a spawn inserted no children, or, with
// dispatcherd.RuleOutcomeIsKnown, that this is not known.
type SpawnError struct {
	Rule   string // a rule of package dispatcherd, or the name of a constraint, which docs/how-to/flows.md lists
	Reason string // a sentence
}

// Error returns the reason and the rule.
func (e *SpawnError) Error() string { return e.Reason + " (" + e.Rule + ")" }

// Spawn inserts 1 to 1,000 children of the job in one transaction, and returns their ids in
// order. When the job has ended, in whatever way, its live children are cancelled. A retry
// does not end the job, so a handler that runs again should expect the children of the
// attempt before.
//
// Spawn waits until ctx ends, and while 16 other spawns of the worker wait. A refusal is a
// *SpawnError. If the connection or ctx ends before the answer, its Rule is
// dispatcherd.RuleOutcomeIsKnown: the children may exist. Spawn never repeats itself; with a
// UniqueKey the caller can. Without a connection Spawn inserts nothing, and its error wraps
// ErrLost.
func (j *Job) Spawn(ctx context.Context, children ...Child) ([]dispatcherd.JobID, error) {
	return j.spawn(ctx, children, false)
}

// SpawnDetached is like Spawn, but the children continue after the end of the job.
func (j *Job) SpawnDetached(ctx context.Context, children ...Child) ([]dispatcherd.JobID, error) {
	return j.spawn(ctx, children, true)
}

func (j *Job) spawn(ctx context.Context, children []Child, detached bool) ([]dispatcherd.JobID, error) {
	jobs, err := encodeChildren(children)
	if err != nil {
		return nil, err
	}
	if !j.run.fits(jobs) {
		return nil, fmt.Errorf("%d children of %d bytes are too long for a frame: spawn them in several calls", len(children), len(jobs))
	}
	w := j.run.w
	select {
	case w.spawns.open <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	frame := &workerproto.Spawn{Execution: j.execution(), Jobs: jobs, Detached: detached}
	answer, c := w.beginSpawn(j.run, frame)
	if c == nil {
		<-w.spawns.open
		return nil, fmt.Errorf("%w: no children were inserted", ErrLost)
	}
	c.Send(frame)
	select {
	case a := <-answer:
		if a.Rule != "" {
			return nil, &SpawnError{Rule: a.Rule, Reason: a.Error}
		}
		return a.IDs, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w",
			&SpawnError{Rule: dispatcherd.RuleOutcomeIsKnown, Reason: "the answer did not come in time: the children may exist"},
			context.Cause(ctx))
	}
}

// wireChild is a Child as a frame contains it.
type wireChild struct {
	*Child

	Payload    json.RawMessage `json:"payload,omitempty"`
	TimeoutMS  int64           `json:"timeout_ms,omitempty"`
	ExpectedMS int64           `json:"expected_ms,omitempty"`
}

// encodeChildren returns the children as a JSON array.
func encodeChildren(children []Child) ([]byte, error) {
	wire := make([]wireChild, len(children))
	for i := range children {
		c := &children[i]
		payload, err := encode(c.Payload)
		if err != nil {
			return nil, fmt.Errorf("child %d of type %q: %w", i+1, c.Type, err)
		}
		wire[i] = wireChild{c, payload, milliseconds(c.Timeout), milliseconds(c.Expected)}
	}
	return encode(wire)
}

// milliseconds rounds a duration away from 0, which is none: Postgres refuses a negative one.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	return ms + int64(cmp.Compare(d, time.Duration(ms)*time.Millisecond))
}

// spawns are the spawns of a worker that have no answer.
type spawns struct {
	open chan struct{} // one element for each; full: the dispatcher would refuse another one

	// Guarded by the worker's mutex.
	last    int64                               // number of the last request
	waiting map[int64]chan *workerproto.Spawned // by number; the channels have room for the answer
}

// beginSpawn assigns a number to a frame and returns the connection that it must be sent
// on, or nil if there is none. If this connection ends later, disconnected answers the spawn.
func (w *Worker) beginSpawn(e *execution, f *workerproto.Spawn) (<-chan *workerproto.Spawned, *workerproto.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.conn == nil || e.conn != w.conn {
		return nil, nil
	}
	w.spawns.last++
	f.Request = w.spawns.last
	answer := make(chan *workerproto.Spawned, 1)
	w.spawns.waiting[f.Request] = answer
	return answer, e.conn
}

// answerSpawnLocked passes an answer on. It ignores an unknown number.
func (w *Worker) answerSpawnLocked(a *workerproto.Spawned) {
	if answer, ok := w.spawns.waiting[a.Request]; ok {
		delete(w.spawns.waiting, a.Request)
		<-w.spawns.open
		answer <- a
	}
}

// endSpawnsLocked answers all spawns, because the connection has ended and the dispatcher will not.
func (w *Worker) endSpawnsLocked() {
	for number := range w.spawns.waiting {
		w.answerSpawnLocked(&workerproto.Spawned{
			Request: number, Rule: dispatcherd.RuleOutcomeIsKnown, Error: "the connection ended before the answer: the children may exist",
		})
	}
}
