package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/workerproto"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// capacityInterval is the time between two checks of the capacity wait.
const capacityInterval = 2 * time.Second

// fake is a dispatcher whose requests end when the test says so.
type fake struct {
	mu         sync.Mutex
	last       dispatcherd.JobID
	callers    map[dispatcherd.JobID]ondemand.Caller
	submitted  chan dispatcherd.JobID
	abandoned  chan dispatcherd.JobID
	refusal    error
	filter     contract.Filter // the latest
	noCapacity bool            // no slot supports the type of any waiting request

	db *pgxpool.Pool // with the tables; nil = none

	batch        []json.RawMessage // of the latest durable fan-out
	distribution ondemand.FanOut   // of the batch
}

func newFake() *fake {
	return &fake{
		callers:   map[dispatcherd.JobID]ondemand.Caller{},
		submitted: make(chan dispatcherd.JobID, 1000),
		abandoned: make(chan dispatcherd.JobID, 1000),
	}
}

func (f *fake) Submit(_ context.Context, _ ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	return f.submit(c, 1)
}

// submit registers a caller under the next id, multiplied by sign. It does so before it
// sends the id to submitted, so that a test can answer at once.
func (f *fake) submit(c ondemand.Caller, sign dispatcherd.JobID) (dispatcherd.JobID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusal != nil {
		return 0, f.refusal
	}
	f.last--
	f.callers[sign*f.last] = c
	f.submitted <- f.last
	return sign * f.last, nil
}

// refuse makes later submissions fail.
func (f *fake) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = err
}

func (f *fake) Abandon(id dispatcherd.JobID, _ ondemand.Caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callers[id] != nil {
		delete(f.callers, id)
		f.abandoned <- id
	}
}

// withCaller calls do with the caller of a request that was not abandoned.
func (f *fake) withCaller(id dispatcherd.JobID, do func(ondemand.Caller)) {
	f.mu.Lock()
	c := f.callers[id]
	f.mu.Unlock()
	if c != nil {
		do(c)
	}
}

func (f *fake) answer(id dispatcherd.JobID, a ondemand.Answer) {
	f.withCaller(id, func(c ondemand.Caller) {
		f.mu.Lock()
		delete(f.callers, id)
		f.mu.Unlock()
		c.Answered(a)
	})
}

// NoCapacity implements ondemand.Backend; the default wait is 5 s.
func (f *fake) NoCapacity(id dispatcherd.JobID) (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 5 * time.Second, f.noCapacity && f.callers[id] != nil
}

// Offered implements Requests.
func (f *fake) Offered(string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.noCapacity
}

// Elsewhere implements ondemand.Backend: only another dispatcher has slots of type "elsewhere".
func (*fake) Elsewhere(typ string) bool { return typ == "elsewhere" }

// setNoCapacity removes all slots, or adds some.
func (f *fake) setNoCapacity(none bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noCapacity = none
}

// Offerings implements ondemand.Backend: two workers offer every type but "none".
func (*fake) Offerings(typ string) []ondemand.Offering {
	if typ == "none" {
		return nil
	}
	return []ondemand.Offering{{Session: 1, Worker: "a", Slots: 1}, {Session: 2, Worker: "b", Slots: 1}}
}

// ClusterSlots implements Backend.
func (*fake) ClusterSlots(typ string) int {
	if typ == "none" {
		return 0
	}
	return 4
}

// InsertBatch implements Backend.
func (f *fake) InsertBatch(_ context.Context, d *ondemand.FanOut, payloads []json.RawMessage) (dispatcherd.JobID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batch, f.distribution = payloads, *d
	return 17, f.refusal
}

func (*fake) Rank(dispatcherd.JobID) (ondemand.Rank, bool) {
	return ondemand.Rank{OfType: 2, Waiting: 5}, true
}
func (*fake) Insert(_ context.Context, job []byte, _ func(string) error) (Inserted, error) {
	return Inserted{ID: 17, Existing: bytes.Contains(job, []byte(`"taken"`))}, nil
}
func (*fake) Watch(dispatcherd.JobID, ondemand.Caller) func() { return func() {} }

func (*fake) Slots(local bool) (slots []contract.Slot, notes []string) {
	if !local {
		notes = []string{"dispatcher b did not answer"}
	}
	for _, o := range []contract.Origin{{Dispatcher: 9, DispatcherName: "a"}, {Dispatcher: 7, DispatcherName: "b"}} {
		slots = append(slots, contract.Slot{Origin: o, Slot: 3, Types: []string{"pdf"}})
		slots = append(slots, contract.Slot{Origin: o, Slot: 20, Types: []string{"xls"}})
	}
	return slots, notes
}

func (*fake) Status() contract.Status { return contract.Status{} }

func (*fake) Types(bool) (p contract.TypePage) {
	p.Items = []contract.Type{{Type: "csv"}, {Type: "pdf", Capacity: 1, Free: 1, Pending: new(int)}, {Type: "xls"}}
	return p
}
func (*fake) Waiting() []contract.WaitingRequest {
	return []contract.WaitingRequest{{ID: -2, Type: "pdf", Age: 1.5}, {ID: -3, Type: "xls", Priority: 3}, {ID: -7, Type: "pdf"}}
}
func (*fake) Checks() []Check { return []Check{{Name: "loop", OK: true}, {Name: "postgres"}} }
func (*fake) Cancel(context.Context, dispatcherd.JobID, string) (dispatcherd.Status, error) {
	return dispatcherd.Running, nil
}

func (*fake) InsertLines(_ context.Context, lines io.Reader, _ func(string) error, _, _ bool, bad func(int, error)) (Uploaded, error) {
	if _, err := io.Copy(io.Discard, lines); err != nil {
		return Uploaded{}, rest.InvalidJob.Of(err.Error())
	}
	bad(2, ErrNotFound)
	return Uploaded{Inserted: 1}, nil
}

func (*fake) Job(_ context.Context, id dispatcherd.JobID) (contract.Job, error) {
	if id == 404 {
		return contract.Job{}, ErrNotFound
	}
	return contract.Job{
		ID:     id,
		Type:   "pdf",
		Status: dispatcherd.Done,
		Result: []byte(`{"ok":true}`),
		RunAt:  time.Unix(1_700_000_000, 0).UTC(),
	}, nil
}

func (*fake) Why(_ context.Context, id dispatcherd.JobID) (Why, error) {
	after := 2.5
	return Why{
		Job:     id,
		Type:    "pdf",
		Mode:    "queued",
		Status:  dispatcherd.Pending,
		Reasons: []string{"CapacityBusy"},
		Score:   &contract.Score{Total: 500, ScoreTerms: contract.ScoreTerms{Rarity: 500}},
		Standing: contract.Standing{Ranks: contract.Ranks{
			Rank: 1, Waiting: 1,
			Ahead: []contract.Rival{{Job: -3, Mode: "on_demand", Passed: &after}, {Job: 4, Mode: "queued"}},
		}, Slots: []contract.Slot{{Slot: 1, Types: []string{"pdf"}, State: "busy"}}},
		Overtaking: &Overtaking{Window: 1439.25, Closes: 1},
	}, nil
}

func (*fake) Retry(_ context.Context, id dispatcherd.JobID) error {
	if id == 404 {
		return ErrNotFound
	}
	return nil
}

func (f *fake) List(_ context.Context, filter contract.Filter) (p contract.JobPage, err error) {
	job, err := f.Job(context.Background(), 17)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filter = filter
	p.Items, p.Next, p.Read = []contract.Job{job}, "17", 100
	return p, err
}

func (f *fake) Change(_ context.Context, _ contract.Operation, filter contract.Filter, count int, _ string) (contract.Bulk, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filter = filter
	switch count {
	case -1:
		return contract.Bulk{Matching: 2, Next: "17"}, nil
	case 2:
		return contract.Bulk{Matching: 2, Changed: 2}, nil
	}
	return contract.Bulk{}, &contract.CountError{Have: 2, Want: count}
}

func (*fake) Workers(local bool) (all []contract.Worker, notes []string) {
	if !local {
		notes = []string{"dispatcher b did not answer"}
	}
	return []contract.Worker{
		{Session: 3, Worker: "w", Types: []string{"pdf"}},
		{Session: 5, Worker: "v", Types: []string{}},
		{Session: 8, Worker: "u", Types: []string{}},
	}, notes
}

func (*fake) Dispatchers(context.Context) ([]contract.Dispatcher, error) {
	return []contract.Dispatcher{{ID: 7, Name: "here", Self: true, State: "running"}}, nil
}

// counts is an Observer.
type counts struct {
	responses atomic.Int64
	failures  atomic.Int64
	mu        sync.Mutex
	bounds    map[Bound]int
	failure   error // the latest

	t testing.TB
	h *Handler // whose routes describe all responses; nil = not checked
}

// Responded implements Observer. Each response must be described.
func (c *counts) Responded(route string, status int, _ time.Duration) {
	c.responses.Add(1)
	if c.h == nil {
		return
	}
	for i := range c.h.routes {
		if r := &c.h.routes[i]; r.Method+" "+r.Path == route && status != rest.CallerGone.Status && !describes(r, status) {
			c.t.Errorf("%s: the status %d is not described", route, status)
		}
	}
}

// describes reports whether a route may answer with a status.
func describes(r *rest.Route, status int) bool {
	return slices.ContainsFunc(r.Kinds(), func(k rest.Kind) bool { return k.Status == status }) ||
		len(r.Answers) == 0 && status == http.StatusOK ||
		slices.ContainsFunc(r.Answers, func(a rest.Answer) bool { return a.Status == status })
}

// Failed implements Observer.
func (c *counts) Failed(_ string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = err
	c.failures.Add(1)
}

func (*counts) Denied(workerproto.Peer, string) {}

func (c *counts) Refused(b Bound) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bounds[b]++
}

func (c *counts) hits(b Bound) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bounds[b]
}

// testHandler is a handler on a fake dispatcher.
func testHandler(t testing.TB, change func(*Config)) (*Handler, *fake, *counts) {
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	f, seen := newFake(), &counts{bounds: map[Bound]int{}, t: t}
	h := New(cfg, f, seen, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	seen.h = h
	t.Cleanup(func() {
		h.Close()
		g := h.Gauges()
		require.Zero(t, g.Bytes, "bytes of ended requests")
		require.Zero(t, g.Bodies, "bodies of disconnected callers")
		require.Zero(t, g.Followers, "disconnected callers")
	})
	return h, f, seen
}

// replaceBackend replaces the backend of a handler.
func replaceBackend(h *Handler, b Backend) {
	h.backend = b
	h.requests = ondemand.New(h.cfg.Limits, b, h.obs.Refused)
}
