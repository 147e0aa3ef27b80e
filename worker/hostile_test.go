//go:build unix

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// hostile is a result, an error or the value of a panic. Its methods do what acts says.
type hostile struct {
	acts, text string
	cause      error
}

// act performs the act of one method. Other letters than these return the text.
func (h *hostile) act(method int) string {
	switch h.acts[method%len(h.acts)] { // a nil h panics
	case 'p':
		panic(h.text)
	case 'h':
		panic(h) // printing it calls Error again
	case 'n':
		panic((*hostile)(nil))
	case 'x':
		runtime.Goexit()
	}
	return h.text
}

func (h *hostile) Error() string                { return h.act(0) }
func (h *hostile) Is(error) bool                { return h.act(1) == "is" }
func (h *hostile) As(any) bool                  { return h.act(2) == "as" }
func (h *hostile) Unwrap() error                { h.act(3); return h.cause }
func (h *hostile) MarshalJSON() ([]byte, error) { return []byte(h.act(4)), h.cause }

// FuzzReturnValuesOfAHandler executes a handler that returns hostile values. Each execution ends
// with one report, which the dispatcher accepts.
func FuzzReturnValuesOfAHandler(f *testing.F) {
	for _, acts := range []string{"", "p", "h", "n", "x", "rp", "rrp", "rrrp", "rrrrp", "rrrrh", "rrrrx", "hr", "xr"} {
		for kind := range uint8(12) {
			f.Add(acts, "\xff\x00", int64(kind)<<32, kind, kind+1)
		}
	}
	f.Fuzz(func(t *testing.T, acts, text string, delay int64, resultKind, errorKind uint8) {
		w := New(Options{})
		w.Slots(1, "x")
		e := w.newExecution(&workerproto.Conn{},
			&workerproto.Job{Execution: workerproto.Execution{Job: 7, Attempt: 1}, Type: "x", Timeout: time.Hour})
		w.handlers["x"] = func(ctx context.Context, job *Job) (any, error) {
			_ = job.Partial(valueOf(resultKind, acts, text))
			return valueOf(resultKind, acts, text), errorOf(ctx, errorKind, acts, text, delay)
		}
		require.Empty(t, w.assignLocked(e))
		e.conn = nil // the report is kept
		ended := make(chan bool)
		go func() {
			defer close(ended) // runtime.Goexit may end the goroutine
			e.execute()
		}()
		<-ended
		require.NotNil(t, e.report)
		accepted, err := workerproto.NewWorkerDecoder().Decode(workerproto.Append(nil, copyFor(e.report, "session")))
		require.Nil(t, err, "%+v", e.report)
		require.IsType(t, e.report, accepted)
	})
}

// valueOf returns a result of one of eight kinds.
func valueOf(kind uint8, acts, text string) any {
	h := &hostile{acts: acts, text: text}
	switch kind % 8 {
	case 0:
		return nil
	case 1:
		return (*hostile)(nil)
	case 2:
		return h
	case 3:
		return []any{text, map[string]any{text: h}}
	case 4:
		return json.RawMessage(text)
	case 5:
		return struct{ F func() }{}
	case 6:
		h.cause = &hostile{acts: acts, text: text}
		return h
	}
	return []byte(text)
}

// errorOf returns an error of one of eleven kinds, or panics.
func errorOf(ctx context.Context, kind uint8, acts, text string, delay int64) error {
	h := &hostile{acts: acts, text: text, cause: RetryAfter(errors.New(text), time.Duration(delay))}
	switch kind % 11 {
	case 1:
		return (*hostile)(nil)
	case 2:
		return h
	case 3:
		return Permanent(h)
	case 4:
		return RetryAfter(h, time.Duration(delay))
	case 5:
		return errors.Join(h, ErrCancelled)
	case 6:
		return ctx.Err()
	case 7:
		panic(h)
	case 8:
		defer h.act(0)
		panic(text)
	case 9:
		h.act(0)
	case 10:
		return errors.New(text)
	}
	return nil
}

// The process continues if a method of a result, of an error or of the value of a panic panics.
// Only the job fails.
func TestPanicAfterTheHandlerHasReturnedFailsOnlyItsJob(t *testing.T) {
	boom := func(acts string) *hostile { return &hostile{acts: acts, text: "boom"} }
	var typedNil *hostile
	cases := map[string]struct {
		result    any
		err       error
		want      string
		permanent bool
	}{
		"error that is a typed nil": {nil, typedNil, "panic: runtime error: invalid memory address", false},
		"Error panics":              {nil, boom("prrrr"), "panic: boom", false},
		"Is panics":                 {nil, boom("rprrr"), "panic: boom", false},
		"As panics":                 {nil, boom("rrprr"), "panic: boom", false},
		"Unwrap panics":             {nil, boom("rrrpr"), "panic: boom", false},
		"Error of a wrapped error":  {nil, Permanent(boom("prrrr")), "panic: boom", false},
		"MarshalJSON panics":        {boom("rrrrp"), nil, "encoding a value of type *worker.hostile: panic: boom", true},
		"MarshalJSON inside": {
			map[string]any{"a": boom("rrrrp")},
			nil,
			"encoding a value of type map[string]interface {}: panic: boom",
			true,
		},
		"error of MarshalJSON":      {&hostile{acts: "r", text: "1", cause: boom("prrrr")}, nil, "panic: boom", false},
		"value of the panic panics": {boom("h"), nil, "panic: a *worker.hostile", true},
		"Goexit in Error":           {nil, boom("xrrrr"), "runtime.Goexit", false},
		"Goexit in MarshalJSON":     {boom("rrrrx"), nil, "runtime.Goexit", false},
	}
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	started, finish := make(chan bool, 1), make(chan bool)
	w.Handle("neighbour", func(context.Context, *Job) (any, error) { started <- true; <-finish; return "unharmed", nil })
	next := make(chan Handler, 1)
	w.Handle("x", func(ctx context.Context, job *Job) (any, error) { return (<-next)(ctx, job) })
	w.Slots(2, "neighbour", "x")
	run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "neighbour", `null`)
	<-started
	id := dispatcherd.JobID(1)
	for name, c := range cases {
		id++
		next <- func(context.Context, *Job) (any, error) { return c.result, c.err }
		push(s, id, 1, "x", `null`)
		fail := expect[*workerproto.Fail](d)
		require.Equal(t, id, fail.Job, name)
		require.Contains(t, fail.Error, c.want, name)
		require.Equal(t, c.permanent, fail.Permanent, name)
		require.True(t, strings.Contains(fail.Error, "hostile_test.go") || strings.Contains(fail.Error, "Goexit"),
			"%s: a stack: %s", name, fail.Error)
	}
	close(finish)
	require.JSONEq(t, `"unharmed"`, string(expect[*workerproto.Done](d).Result))
}

// A running job ends as usual before Run returns the panic.
func TestPanicOfAComplaintDrainsTheWorker(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path, Complaint: func(*workerproto.Error) { panic(&hostile{acts: "h"}) }})
	started, finish := make(chan bool, 1), make(chan bool)
	w.Handle("x", func(context.Context, *Job) (any, error) { started <- true; <-finish; return "unharmed", nil })
	w.Slots(1, "x")
	r := run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	<-started
	s.Send(workerproto.Complain(workerproto.BadSlot, "a complaint"))
	expect[*workerproto.Drain](d)
	close(finish)
	require.JSONEq(t, `"unharmed"`, string(expect[*workerproto.Done](d).Result))
	require.ErrorContains(t, r.wait(), "worker: Options.Complaint: panic: a *worker.hostile")
}

func TestPanicOfAnOptionIsReturnedByRun(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	missing := d.path + "-missing"
	for name, o := range map[string]Options{
		"FindSocket":   {FindSocket: func() string { panic("boom") }},
		"Connected":    {Socket: d.path, Connected: func(workerproto.Welcome) { panic("boom") }},
		"Disconnected": {Socket: missing, Disconnected: func(error) { panic("boom") }},
	} {
		require.ErrorContains(t, New(o).Run(t.Context()), "worker: Options."+name+": panic: boom\ngoroutine ")
	}
}

// copyFor returns a copy of a report for a session.
func copyFor(report workerproto.WorkerFrame, session string) workerproto.WorkerFrame {
	switch r := report.(type) {
	case *workerproto.Done:
		again := *r
		again.Session = session
		return &again
	case *workerproto.Fail:
		again := *r
		again.Session = session
		return &again
	case *workerproto.Release:
		again := *r
		again.Session = session
		return &again
	}
	return report
}
