package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// What honest users wait for, besides the starts of the jobs of the usual production.
const (
	waitStart   = "start"   // of a job without keys, from its commit
	waitBatch   = "batch"   // from its opening to the start of its callback
	waitFlow    = "flow"    // from its insertion to the start of its callback
	waitSpawn   = "spawn"   // from the start of a parent to its end; it inserts a child and does nothing else
	waitInsert  = "insert"  // of a job over the API
	waitRead    = "read"    // of a job over the API
	waitRequest = "request" // in memory
)

var allWaits = []string{waitStart, waitBatch, waitFlow, waitSpawn, waitInsert, waitRead, waitRequest}

// Bounds of the comparison of honest users with and without a hostile one.
const (
	unfair   = 3                     // times as long is too long
	shortest = 40 * time.Millisecond // a shorter wait counts as this long, because pauses of a busy machine are not shorter
	endless  = time.Minute           // the wait of a user who was refused
	fewest   = 4                     // waits with and without
)

// span is a period by history.Now, and what was done in it.
type span struct {
	from, to int64
	attack   string
}

// honest is the work of honest users, whom a hostile one must not delay. Each kind of work begins at its own pace, whether the earlier work
// has ended or not.
type honest struct {
	*Scene

	daemon *stage.Daemon
	pool   *pgxpool.Pool
	busy   chan struct{} // a place for each operation that has not ended

	mu       sync.Mutex
	waits    map[string][]wait
	refusals map[string]error // the last ones
	latest   string           // job that was inserted over the API
}

// wait is one wait of an honest user.
type wait struct {
	at   int64 // when it began
	took time.Duration
}

// uniqueKeys are those of the jobs that honest callers insert.
var uniqueKeys = func() (keys []string) {
	for i := range 40 {
		keys = append(keys, "order-"+strconv.Itoa(i))
	}
	return keys
}()

// concurrent bounds the operations of honest users that have not ended.
const concurrent = 256

// workHonestly begins the work of honest users. end ends it, and waits for the last operation.
func (s *Scene) workHonestly(ctx context.Context, d *stage.Daemon) (end func() error, err error) {
	config, err := pgxpool.ParseConfig(s.URL())
	if err != nil {
		return nil, err
	}
	config.MaxConns = 16
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "off"
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, err
	}
	h := &honest{Scene: s, daemon: d, pool: pool, busy: make(chan struct{}, concurrent)}
	h.waits, h.refusals = map[string][]wait{}, map[string]error{}
	s.honest = h
	working, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, work := range []struct {
		what   string
		period time.Duration
		do     func(ctx context.Context, i int) error
	}{
		{waitBatch, 250 * time.Millisecond, h.insertBatch},
		{waitFlow, 250 * time.Millisecond, h.insertFlow},
		{waitSpawn, 150 * time.Millisecond, h.insertParent},
		{waitInsert, 50 * time.Millisecond, h.insertJob},
		{waitRead, 50 * time.Millisecond, h.readJob},
		{waitRequest, 50 * time.Millisecond, h.request},
	} {
		all.Go(func() {
			s.every(working, work.period, func(i int) { h.begin(&all, work.what, func() error { return work.do(context.WithoutCancel(ctx), i) }) })
		})
	}
	return func() error {
		stop()
		all.Wait()
		pool.Close()
		return s.SealAll(context.WithoutCancel(ctx))
	}, nil
}

// begin starts an operation and records how long it takes. The times of batches, flows and parents are those of their rows.
func (h *honest) begin(all *sync.WaitGroup, what string, do func() error) {
	at := history.Now()
	select {
	case h.busy <- struct{}{}:
	default:
		h.record(what, wait{at, endless})
		return
	}
	all.Go(func() {
		defer func() { <-h.busy }()
		err := do()
		switch {
		case err != nil:
			h.record(what, wait{at, endless})
			h.mu.Lock()
			h.refusals[what] = err
			h.mu.Unlock()
		case what != waitBatch && what != waitFlow && what != waitSpawn:
			h.record(what, wait{at, time.Duration(history.Now() - at)})
		}
	})
}

func (h *honest) record(what string, w wait) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits[what] = append(h.waits[what], w)
}

// openTime is how long a batch is open before its members are inserted.
const openTime = 150 * time.Millisecond

// insertBatch inserts a batch of three members with a callback.
func (h *honest) insertBatch(ctx context.Context, _ int) error {
	return h.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		var batch int64
		if err := conn.QueryRow(ctx, `SELECT dispatcherd.open_batch(jsonb_build_object('type', $1::text), 'ended')`, history.Callback).
			Scan(&batch); err != nil {
			return err
		}
		h.rest(ctx, openTime)
		if _, err := conn.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, parent) SELECT $1, $2 FROM generate_series(1, 3)`,
			history.Member, batch); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `SELECT dispatcherd.seal_batch($1)`, batch)
		return err
	})
}

// insertFlow inserts a flow of two layers with a callback.
func (h *honest) insertFlow(ctx context.Context, _ int) error {
	_, err := h.pool.Exec(ctx, `SELECT dispatcherd.insert_flow($1)`, map[string]any{
		"nodes": stage.Layers(2, 2, history.Node), "callback": map[string]any{"type": history.Callback, "run_when": "ended"},
	})
	return err
}

// insertParent inserts a job that inserts a child.
func (h *honest) insertParent(ctx context.Context, _ int) error {
	payload, err := json.Marshal(history.Work{Do: history.Spawn, Children: 1, Child: &history.Work{}})
	if err == nil {
		_, err = h.pool.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, payload) VALUES ($1, $2)`, history.Parent, string(payload))
	}
	return err
}

// callTime bounds an honest call.
const callTime = 20 * time.Second

// insertJob inserts a job with a unique key over the API.
func (h *honest) insertJob(ctx context.Context, i int) error {
	job := fmt.Sprintf(`{"type":"%s","unique_key":"%s"}`, history.Member, uniqueKeys[i%len(uniqueKeys)])
	at, err := h.call(ctx, http.MethodPost, "/v1/jobs", job)
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.latest = at
	}
	return err
}

// readJob reads a job over the API.
func (h *honest) readJob(ctx context.Context, _ int) error {
	h.mu.Lock()
	path := cmp.Or(h.latest, "/v1/batches")
	h.mu.Unlock()
	_, err := h.call(ctx, http.MethodGet, path, "")
	return err
}

// call sends a request to the API. location is the path in the answer.
func (h *honest) call(ctx context.Context, method, path, body string) (location string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://daemon"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := h.daemon.Client().Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // the body is read completely
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return "", err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return "", fmt.Errorf("%s %s answers %s", method, path, res.Status)
	}
	return res.Header.Get("Location"), nil
}

// request runs a job in memory. The judge checks its answer as well.
func (h *honest) request(ctx context.Context, _ int) error {
	if c := h.Call(ctx, h.daemon, history.InMemory, callTime); c.Status != http.StatusOK {
		return fmt.Errorf("a request is answered with %d", c.Status)
	}
	return nil
}

// addStarts adds the waits for starts.
func (h *honest) addStarts(x *history.History) {
	known := map[int64]int64{}
	for i := range x.Batches {
		for k := range x.Batches[i].Jobs {
			if x.Batches[i].Fate == history.Committed && x.Batches[i].Jobs[k].Keys == "" {
				known[x.Batches[i].Jobs[k].N] = x.Batches[i].Ended
			}
		}
	}
	for i := range x.Processes {
		for k := range x.Processes[i].Runs {
			if e := &x.Processes[i].Runs[k]; e.Attempt == 1 && known[e.N] != 0 {
				h.record(waitStart, wait{known[e.N], time.Duration(max(0, e.Start-known[e.N]))})
			}
		}
	}
}

// addRows adds the waits whose times are those of rows.
func (h *honest) addRows() {
	shift := time.Now().UnixNano() - history.Now()
	add := func(what string, from, to int64) {
		took := endless
		if to != 0 {
			took = time.Duration(to-from) * time.Microsecond
		}
		h.record(what, wait{from*1000 - shift, took})
	}
	callbacks := map[int64]*history.Part{}
	for i := range h.structures.Jobs {
		p := &h.structures.Jobs[i]
		callbacks[p.Job] = p
		if p.Type == history.Parent {
			add(waitSpawn, p.Started, p.Ended)
		}
	}
	for i := range h.structures.Joins {
		j := &h.structures.Joins[i]
		if c := callbacks[j.ID]; j.Kind != "node" && j.Callback && c != nil {
			add(j.Kind, j.Opened, c.Started)
		}
	}
}

// in returns the sorted waits that began in one of the periods.
func (h *honest) in(what string, periods []span) (list judge.Waits) {
	for _, w := range h.waits[what] {
		if contains(periods, w.at) {
			list = append(list, w.took)
		}
	}
	slices.Sort(list)
	return list
}

func contains(periods []span, at int64) bool {
	return slices.ContainsFunc(periods, func(p span) bool { return p.from <= at && at < p.to })
}

// compareHonest compares the waits of honest users with and without a hostile one. It notes the 99th percentiles.
func (s *Scene) compareHonest(x *history.History, r *judge.Report) (failures []string) {
	h, worst := s.honest, 0.0
	h.addStarts(x)
	h.addRows()
	var texts []string
	for _, what := range allWaits {
		without, with := h.in(what, s.without), h.in(what, s.with)
		if min(len(without), len(with)) < fewest {
			failures = append(failures, fmt.Sprintf("%s: only %d and %d waits without and with a hostile user", what, len(without), len(with)))
			continue
		}
		usual, beside := p99(without), p99(with)
		ratio := float64(max(beside, shortest)) / float64(max(usual, shortest))
		worst = max(worst, ratio)
		texts = append(texts, fmt.Sprintf("%s:%s/%s", what, milliseconds(beside), milliseconds(usual)))
		if ratio > unfair {
			r.FindDelayed(with, unfair*max(usual, shortest))
			worst := slices.MaxFunc(s.with, func(a, b span) int { return cmp.Compare(h.p99(what, a), h.p99(what, b)) })
			failures = append(failures, fmt.Sprintf("%s took an honest user %v (p99) beside a hostile one, and %v without; %v beside %s; "+
				"last refusal: %v", what, round(beside), round(usual), round(h.p99(what, worst)), worst.attack, h.refusals[what]))
		}
	}
	s.Note("honest_p99_ms", strings.Join(texts, ",")) // with and without the hostile user
	for _, p := range s.beside {
		var texts []string
		for _, what := range allWaits {
			texts = append(texts, what+":"+milliseconds(h.p99(what, p)))
		}
		s.Note(p.attack+"_p99_ms", strings.Join(texts, ","))
	}
	s.Note("honest_ratio", strconv.FormatFloat(worst, 'f', 2, 64))
	return failures
}

func (h *honest) p99(what string, period span) time.Duration {
	return p99(h.in(what, []span{period}))
}

// p99 returns the 99th percentile. Of several waits it is never the longest one, which may be due to a pause of the machine.
func p99(w judge.Waits) time.Duration {
	return w.At(0.99 * float64(len(w)-1) / float64(len(w)))
}

func milliseconds(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e6, 'f', 1, 64) }
