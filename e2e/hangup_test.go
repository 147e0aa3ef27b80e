package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// hangUps makes callers disconnect. The only slot of type "full" is busy during the whole test,
// so callers that request this type wait. The slots of type "pdf" are free between two rounds.
type hangUps struct {
	*world
	t      *testing.T
	h      *host
	callee *callee
	c      *caller
	rng    *rand.Rand
	last   int // numbers the idempotency keys
	rows   int // number of durable requests so far
	keys   int // number of answers that may be kept for a repeated key
}

const hangUpSlots = 32

// stages are the points at which callers hang up. Each stage uses some of the remaining calls
// and returns how many it made.
var stages = []struct {
	name  string
	calls int
	round int
	leave func(s *hangUps, n int)
}{
	{name: "queued", calls: 2000, round: 200, leave: (*hangUps).whileQueued},
	{name: "reserved", calls: 1024, round: hangUpSlots, leave: (*hangUps).whileReserved},
	{name: "running", calls: 2016, round: hangUpSlots, leave: (*hangUps).whileRunning},
	{name: "answering", calls: 1024, round: hangUpSlots, leave: (*hangUps).whileAnswered},
	{name: "any moment", calls: 4000, round: 500, leave: (*hangUps).atRandom},
}

// Callers disconnect at every point of a request, in rounds of random order. After each round
// every slot is free. In the end no goroutine remains, and every request has exactly one end.
func TestCallersHangingUpAtAnyPointLeakNothing(t *testing.T) {
	w := newWorldAlone(t)
	cfg := w.config("d")
	cfg.API = daemon.DefaultAPIConfig()
	// With one connection rows are committed in the order of their ids, so a fetch finds every row without a full
	// scan.
	cfg.API.Connections = 1
	cfg.ConnectionRate = 10_000 // callers of this test hang up faster than a user may connect
	h := w.start(cfg)
	s := &hangUps{
		world: w, t: t, h: h, callee: serveCalls(t, h.cfg.WorkerSocket, hangUpSlots, "pdf"), c: h.caller(),
		rng: rand.New(rand.NewPCG(daemon.NewSeed()[0], 1)),
	}
	full := serveCalls(t, h.cfg.WorkerSocket, 1, "full")
	h.awaitSlots(hangUpSlots + 1)
	var holder sync.WaitGroup
	holder.Go(func() { s.c.request(`{"type":"full","timeout":600,"payload":{"do":"gate"}}`) })
	defer holder.Wait()
	defer close(full.open)
	h.awaitState("busy", -1)
	s.c.client.CloseIdleConnections()

	var rounds []int // indexes into stages
	for i, stage := range stages {
		calls := stage.calls
		if testing.Short() || underRace {
			calls /= 10
		}
		for range (calls + stage.round - 1) / stage.round {
			rounds = append(rounds, i)
		}
	}
	s.rng.Shuffle(len(rounds), func(i, j int) { rounds[i], rounds[j] = rounds[j], rounds[i] })
	w.await(w.insert("pdf", work{}), dispatcherd.Done) // opens every connection to Postgres
	s.useAllSlots()
	s.settle()
	goroutines := runtime.NumGoroutine()
	left := map[string]int{}
	for _, i := range rounds {
		stages[i].leave(s, stages[i].round)
		left[stages[i].name] += stages[i].round
		s.settle()
	}
	t.Logf("hung up: %v", left)
	eventually(
		t,
		func() bool { return runtime.NumGoroutine() <= goroutines+5 },
		func() string { // the runtime may have started some goroutines of its own
			return fmt.Sprintf("%d goroutines as before; there are %d", goroutines, runtime.NumGoroutine())
		},
	)
	s.requireEqualCounters()
}

// settle waits until only the request in the "full" slot is left. A caller may have
// disconnected before its connection was accepted. Its request then runs for a moment although
// no gauge shows it yet. Connections are accepted in order, so after the answer to one more
// request no such connection is left. The number of connections is read first, so that later
// reads include the requests of these connections.
func (s *hangUps) settle() {
	s.t.Helper()
	_, err := askAPI(s.h.cfg, "/livez")
	require.NoError(s.t, err)
	var own httpapi.Gauges
	eventually(s.t, func() bool {
		s.c.client.CloseIdleConnections()
		own = s.h.Books().API
		g := s.h.gauges()
		return g.InHand == 1 && g.Free == hangUpSlots && g.Unrecorded == 0 && g.ClaimsUnderWay == 0 &&
			own.Followers == 0 && own.Requests <= s.keys && own.Connections == 1 && s.h.Books().Rows == 0
	}, func() string {
		var taken []actor.SlotInfo
		for _, slot := range s.h.slots() {
			if slot.State != "free" {
				taken = append(taken, slot)
			}
		}
		return fmt.Sprintf("no request or job in hand except one: %+v %+v, slots in use %+v", s.h.gauges(), own, taken)
	})
	for len(s.callee.cancelled) > 0 {
		<-s.callee.cancelled
	}
}

// requireEqualCounters checks that the counters in memory, in the table and in the metrics
// agree.
func (s *hangUps) requireEqualCounters() {
	books := s.h.Books()
	ends, rowEnds := books.RequestsEnded, books.DurableEnded
	require.Equal(s.t, 1, books.Waiting)
	require.Equal(s.t, books.Requests, 1+sumOf(ends), "%v", ends)
	require.Equal(s.t, books.Durable, sumOf(rowEnds), "%v", rowEnds)
	require.EqualValues(s.t, s.rows, books.Durable)
	require.EqualValues(s.t, s.rows, rowEnds[0], "every durable caller disconnected before the end")
	require.Equal(s.t, s.rows+1, s.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.Equal(s.t, s.rows, s.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'cancelled'`))
	s.t.Logf("in memory %v, durable %v", ends, rowEnds)
	shown := metricsOn(s.t, s.h.cfg)
	for kind, open := range map[string]float64{"memory": 1, "durable": 0} {
		ended := 0.0
		for name, value := range shown {
			if strings.HasPrefix(name, "dispatcherd_requests_ended_total{") && strings.Contains(name, `kind="`+kind+`"`) {
				ended += value
			}
		}
		require.InDelta(s.t, shown[`dispatcherd_requests_submitted_total{kind="`+kind+`"}`], ended+open, 0, kind)
	}
}

func sumOf(ends [ondemand.Changed]uint64) (sum uint64) {
	for _, n := range ends {
		sum += n
	}
	return sum
}

// metricsOn reads all samples of a daemon's metrics.
func metricsOn(t *testing.T, cfg daemon.Config) map[string]float64 {
	t.Helper()
	text, err := askAPI(cfg, "/metrics")
	require.NoError(t, err)
	samples := map[string]float64{}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		samples[line[:at]], err = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		require.NoError(t, err, line)
	}
	return samples
}

// pendingCalls is a group of calls in progress.
type pendingCalls struct {
	calls sync.WaitGroup
	hang  []context.CancelFunc
}

// call sends n requests. Each caller waits in one of the possible ways. No request may be
// answered.
func (s *hangUps) call(n int, body string) *pendingCalls {
	g := &pendingCalls{}
	for range n {
		s.last++
		headers, body := s.way(body)
		ctx, hangUp := context.WithCancel(s.t.Context())
		g.hang = append(g.hang, hangUp)
		g.calls.Go(func() {
			got, err := s.c.send(ctx, http.MethodPost, "/v1/requests", body, headers...)
			if err == nil {
				s.t.Errorf("the request was answered: %d %s", got.StatusCode, got.body)
			}
		})
	}
	s.rng.Shuffle(n, func(i, j int) { g.hang[i], g.hang[j] = g.hang[j], g.hang[i] })
	return g
}

// way chooses how a caller waits: with its own request, with a stream, with a key, or with a
// shared request.
func (s *hangUps) way(body string) (headers []string, _ string) {
	if strings.Contains(body, `"durable":true`) {
		return nil, body // the row of a key continues after a disconnect
	}
	switch s.rng.IntN(4) {
	case 0:
		return []string{"Accept", "text/event-stream"}, body
	case 1:
		return []string{"Idempotency-Key", strconv.Itoa(s.last)}, body
	case 2:
		return nil, body[:len(body)-1] + fmt.Sprintf(`,"coalesce_key":"%d"}`, s.last)
	}
	return nil, body
}

// leave disconnects all callers and waits until their calls have returned. It runs meanwhile
// between two disconnects.
func (g *pendingCalls) leave(rng *rand.Rand, meanwhile func()) {
	at := rng.IntN(len(g.hang))
	for i, hangUp := range g.hang {
		if i == at {
			meanwhile()
		}
		hangUp()
	}
	g.calls.Wait()
}

func (s *hangUps) whileQueued(n int) {
	runs := s.callee.runs.Load()
	g := s.call(n, `{"type":"full","payload":{"do":"gate"}}`)
	eventually(
		s.t,
		func() bool { return s.h.gauges().Requests == n },
		func() string { return fmt.Sprint("all requests in the queue: ", s.h.gauges()) },
	)
	g.leave(s.rng, func() {})
	require.Equal(s.t, runs, s.callee.runs.Load())
}

// stopClaims suspends the Postgres backend of the dispatcher's claims between two claims, when
// it holds no lock. Until release is called, a claim is in flight and its slots stay reserved.
func (s *hangUps) stopClaims() (release func()) {
	pid := s.number(`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dispatcherd claim%'`)
	require.NoError(s.t, syscall.Kill(pid, syscall.SIGSTOP))
	return func() { require.NoError(s.t, syscall.Kill(pid, syscall.SIGCONT)) }
}

// whileReserved delays claims. A caller disconnects before or after the claim of its job.
func (s *hangUps) whileReserved(n int) {
	s.rows += n
	release := sync.OnceFunc(s.stopClaims())
	defer release()
	g := s.call(n, `{"type":"pdf","durable":true,"payload":{"do":"gate"}}`)
	most, then := 0, actor.Gauges{}
	eventually(s.t, func() bool {
		reserved := 0
		for _, slot := range s.h.slots() {
			if slot.State == "reserved" {
				reserved++
			}
		}
		if reserved > most {
			most, then = reserved, s.h.gauges()
		}
		return reserved == n
	}, func() string { return fmt.Sprintf("%d reserved slots; there were at most %d: %+v", n, most, then) })
	g.leave(s.rng, release)
}

// useAllSlots makes all slots of the worker execute jobs, so that the worker starts as
// many goroutines as it can need.
func (s *hangUps) useAllSlots() { s.begin(hangUpSlots).leave(s.rng, func() {}) }

// begin sends n requests and waits until all of them execute. It does not wait until no slot
// is free, because a slot may be reserved for a row whose caller has disconnected.
func (s *hangUps) begin(n int) *pendingCalls {
	runs := s.callee.runs.Load()
	g := s.call(n, `{"type":"pdf","payload":{"do":"gate"}}`)
	eventually(
		s.t,
		func() bool { return s.callee.runs.Load() == runs+int64(n) },
		func() string { return fmt.Sprintf("%d begun: %s", n, s.everything()) },
	)
	return g
}

// everything describes the state of the dispatcher for the message of a failed wait.
func (s *hangUps) everything() string {
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	return fmt.Sprintf("%+v %+v, slots %+v\n%s", s.h.gauges(), s.h.Books().API, s.h.slots(), stacks.String())
}

func (s *hangUps) whileRunning(n int) {
	s.begin(n).leave(s.rng, func() {})
	told := 0
	eventually(s.t, func() bool {
		for len(s.callee.cancelled) > 0 {
			<-s.callee.cancelled
			told++
		}
		return told == n
	}, func() string { return fmt.Sprintf("%d cancelled jobs; there were %d: %s", n, told, s.everything()) })
}

// answerTooLong is the size of an answer in bytes that does not fit into the buffers of a
// socket without a reader.
const answerTooLong = 512 << 10

// whileAnswered reads the beginning of an answer that is too long to be sent completely, and
// disconnects.
func (s *hangUps) whileAnswered(n int) {
	before := s.h.Books().RequestsEnded
	var calls sync.WaitGroup
	for range n {
		s.last++
		headers, body := s.way(fmt.Sprintf(`{"type":"pdf","payload":{"do":"big","bytes":%d}}`, answerTooLong))
		stream := len(headers) > 0 && headers[0] == "Accept"
		if len(headers) > 0 && !stream { // the answer is kept for a repetition of the key
			headers = nil
		}
		further := int64(s.last % 5000)
		calls.Go(func() {
			ctx, hangUp := context.WithCancel(s.t.Context())
			defer hangUp()
			s.readBeginning(ctx, body, stream, headers, further)
		})
	}
	calls.Wait()
	eventually(s.t, func() bool {
		now := s.h.Books().RequestsEnded
		return now[ondemand.Done]-before[ondemand.Done] == uint64(n)
	}, func() string { return "all requests answered" })
}

// readBeginning reads the headers and the first bytes of the result.
func (s *hangUps) readBeginning(ctx context.Context, body string, stream bool, headers []string, further int64) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://dispatcherd/v1/requests", strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.c.client.Do(req)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer res.Body.Close()
	text, piece := "", make([]byte, 1000)
	for !strings.Contains(text, "xxx") {
		n, err := res.Body.Read(piece)
		text += string(piece[:n])
		if err != nil {
			s.t.Errorf("no beginning of a result: %v", err)
			return
		}
	}
	if rest, err := io.CopyN(io.Discard, res.Body, further); err != nil {
		s.t.Errorf("after %d bytes: %v", rest, err)
	}
	if stream {
		require.Contains(s.t, text, "event: result")
	}
}

// atRandom makes callers of short jobs disconnect at random points of a request, including
// while the answer is being sent.
func (s *hangUps) atRandom(n int) {
	var calls sync.WaitGroup
	places := make(chan struct{}, 2*hangUpSlots)
	for range n {
		places <- struct{}{}
		s.last++
		headers, body := s.way(`{"type":"pdf","payload":{"n":1}}`)
		if len(headers) > 0 && headers[0] == "Idempotency-Key" {
			s.keys++
		}
		patience := time.Duration(s.rng.IntN(12_000)) * time.Microsecond
		calls.Go(func() {
			defer func() { <-places }()
			ctx, hangUp := context.WithTimeout(s.t.Context(), patience)
			defer hangUp()
			_, _ = s.c.send(ctx, http.MethodPost, "/v1/requests", body, headers...) // an answer and an error are both valid
		})
	}
	calls.Wait()
}
