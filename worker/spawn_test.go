//go:build unix

package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// spawning is what a handler got from Spawn.
type spawning struct {
	ids []dispatcherd.JobID
	err error
}

// spawner runs a worker whose jobs call spawn and return.
func spawner(
	t *testing.T,
	spawn func(context.Context, *Job) ([]dispatcherd.JobID, error),
) (*dispatcher, *workerproto.Session, <-chan spawning) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path, Name: "w"})
	results := make(chan spawning, 10)
	w.Handle("pdf", func(ctx context.Context, j *Job) (any, error) {
		ids, err := spawn(ctx, j)
		results <- spawning{ids, err}
		return nil, nil
	})
	w.Slots(1, "pdf")
	run(t, w)
	s, _ := d.opened()
	return d, s, results
}

func awaitSpawning(t *testing.T, results <-chan spawning) spawning {
	t.Helper()
	select {
	case r := <-results:
		return r
	case <-time.After(patience):
		require.FailNow(t, "Spawn did not return")
		panic("unreachable")
	}
}

func TestSpawnReturnsTheIDsOfTheChildren(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	d, s, results := spawner(t, func(ctx context.Context, j *Job) ([]dispatcherd.JobID, error) {
		return j.Spawn(ctx,
			Child{Type: "mail", Payload: map[string]int{"n": 1}, Timeout: -1},
			Child{
				Type:        "pdf",
				Payload:     []byte(`[1]`),
				Priority:    3,
				RunAt:       at,
				MaxAttempts: 2,
				Timeout:     time.Microsecond,
				Expected:    time.Minute,
				Keys:        "k",
				UniqueKey:   "u",
				Traceparent: "t",
				Backoff:     "b",
			},
		)
	})
	require.True(t, push(s, 42, 0, "pdf", `{}`))
	f := expect[*workerproto.Spawn](d)
	require.Equal(t, workerproto.Execution{Job: 42, Attempt: 1, Session: s.Nonce()}, f.Execution)
	require.False(t, f.Detached)
	require.JSONEq(t, `[{"type":"mail","payload":{"n":1},"timeout_ms":-1},
		{"type":"pdf","payload":[1],"priority":3,"run_at":"2030-01-02T03:04:05Z","max_attempts":2,"timeout_ms":1,
			"expected_ms":60000,"keys":"k","unique_key":"u","traceparent":"t","backoff":"b"}]`, string(f.Jobs))
	require.True(t,
		s.Send(&workerproto.Spawned{Execution: f.Execution, Request: f.Request + 1, IDs: []dispatcherd.JobID{1}}),
		"of no request: ignored")
	require.True(t, s.Send(&workerproto.Spawned{Execution: f.Execution, Request: f.Request, IDs: []dispatcherd.JobID{43, 44}}))
	require.Equal(t, spawning{ids: []dispatcherd.JobID{43, 44}}, awaitSpawning(t, results))
	expect[*workerproto.Done](d)
}

func TestRefusedSpawnNamesTheRule(t *testing.T) {
	d, s, results := spawner(t, func(ctx context.Context, j *Job) ([]dispatcherd.JobID, error) {
		return j.SpawnDetached(ctx, Child{Type: "mail"})
	})
	require.True(t, push(s, 42, 0, "pdf", `{}`))
	f := expect[*workerproto.Spawn](d)
	require.True(t, f.Detached)
	require.True(
		t,
		s.Send(&workerproto.Spawned{Execution: f.Execution, Request: f.Request, Rule: dispatcherd.RuleParentIsRunning, Error: "it has ended"}),
	)
	r := awaitSpawning(t, results)
	require.Equal(t, &SpawnError{Rule: dispatcherd.RuleParentIsRunning, Reason: "it has ended"}, r.err)
	require.EqualError(t, r.err, "it has ended (parent_is_running)")
}

func TestOutcomeOfASpawnIsUnknownWhenTheConnectionEnds(t *testing.T) {
	d, s, results := spawner(t, func(ctx context.Context, j *Job) ([]dispatcherd.JobID, error) {
		return j.Spawn(context.WithoutCancel(ctx), Child{Type: "mail"})
	})
	require.True(t, push(s, 42, 0, "pdf", `{}`))
	expect[*workerproto.Spawn](d)
	s.Close(nil)
	r := awaitSpawning(t, results)
	refusal, ok := errors.AsType[*SpawnError](r.err)
	require.True(t, ok, "%v", r.err)
	require.Equal(t, dispatcherd.RuleOutcomeIsKnown, refusal.Rule)
}

func TestOutcomeOfASpawnIsUnknownWhenItsContextEnds(t *testing.T) {
	cause := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	d, s, results := spawner(t, func(_ context.Context, j *Job) ([]dispatcherd.JobID, error) {
		return j.Spawn(ctx, Child{Type: "mail"})
	})
	require.True(t, push(s, 42, 0, "pdf", `{}`))
	expect[*workerproto.Spawn](d)
	cancel(cause)
	r := awaitSpawning(t, results)
	require.ErrorIs(t, r.err, cause)
	refusal, ok := errors.AsType[*SpawnError](r.err)
	require.True(t, ok, "%v", r.err)
	require.Equal(t, dispatcherd.RuleOutcomeIsKnown, refusal.Rule)
}

// The dispatcher refuses the seventeenth spawn without an answer, so the worker does not
// send it.
func TestSpawnWaitsWhileTooManyHaveNoAnswer(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	full, checked := make(chan struct{}), make(chan error, 1)
	d, s, results := spawner(t, func(ctx context.Context, j *Job) ([]dispatcherd.JobID, error) {
		for range dispatcherd.MaxOpenSpawns {
			go func() { _, _ = j.Spawn(ctx, Child{Type: "mail"}) }()
		}
		<-full
		_, err := j.Spawn(ended, Child{Type: "mail"})
		checked <- err
		return j.Spawn(ctx, Child{Type: "last"})
	})
	require.True(t, push(s, 42, 0, "pdf", `{}`))
	var f *workerproto.Spawn
	for range dispatcherd.MaxOpenSpawns {
		f = expect[*workerproto.Spawn](d)
	}
	close(full)
	require.Equal(t, context.Canceled, <-checked, "it was not sent")
	require.True(t, s.Send(&workerproto.Spawned{Execution: f.Execution, Request: f.Request, IDs: []dispatcherd.JobID{1}}))
	last := expect[*workerproto.Spawn](d)
	require.Contains(t, string(last.Jobs), "last")
	require.True(t, s.Send(&workerproto.Spawned{Execution: last.Execution, Request: last.Request, IDs: []dispatcherd.JobID{2}}))
	require.Equal(t, spawning{ids: []dispatcherd.JobID{2}}, awaitSpawning(t, results))
}

func TestInvalidChildrenAreNotSent(t *testing.T) {
	for want, child := range map[string]Child{
		`child 1 of type "mail"`: {Type: "mail", Payload: func() {}},
		"surrogate":              {Type: "mail", Payload: []byte(`"\ud800"`)},
		"too long for a frame":   {Type: "mail", Payload: strings.Repeat("x", 2<<20)},
	} {
		_, s, results := spawner(t, func(ctx context.Context, j *Job) ([]dispatcherd.JobID, error) { return j.Spawn(ctx, child) })
		require.True(t, push(s, 42, 0, "pdf", `{}`))
		require.ErrorContains(t, awaitSpawning(t, results).err, want)
	}
}
