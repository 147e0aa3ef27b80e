package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// durableCall is one durable request and its outcome.
type durableCall struct {
	n      int
	job    dispatcherd.JobID // id as reported to the caller; 0 = not reported
	result string            // "" = the connection ended before the result
	failed string            // an unexpected answer without a result
}

// callDurable sends a request that becomes a row, and waits for its end. durable is its member of this name, or "". With a stream
// the caller gets the row's id at once, otherwise with the answer.
func (c *caller) callDurable(n int, durable string, stream bool, nap time.Duration) (got durableCall) {
	got.n = n
	body := fmt.Sprintf(`{"type":"pdf",%s"timeout":60,"payload":{"do":"nap","nap":"%v","result":{"n":%d}}}`, durable, nap, n)
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://dispatcherd/v1/requests", strings.NewReader(body))
	if err != nil {
		got.failed = err.Error()
		return got
	}
	if stream {
		req.Header.Set("Accept", "text/event-stream")
	}
	res, err := c.client.Do(req)
	if err != nil {
		return got // the dispatcher was killed
	}
	defer res.Body.Close()
	id, _ := strconv.ParseInt(res.Header.Get("Dispatcherd-Job"), 10, 64)
	got.job = dispatcherd.JobID(id)
	if !stream || res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(res.Body)
		switch {
		case err == nil && res.StatusCode == http.StatusOK:
			got.result = string(text)
		case err == nil:
			got.failed = fmt.Sprint(res.StatusCode, string(text))
		}
		return got
	}
	event := ""
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, data, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			event = data
		case name == "data" && event == "result":
			got.result = data
		case name == "data" && event == "error":
			got.failed = data
		}
	}
	return got
}

// pair is two dispatchers in separate processes. The callers use one of them. The workers that
// support the type are connected to the other one.
type pair struct {
	*world
	here, there   daemon.Config
	caller, other *child
	told          map[string]int // number of calls by outcome
	durable       string         // member of the requests
}

func newPair(w *world) *pair {
	p := &pair{world: w, here: w.config("here"), there: w.config("there"), told: map[string]int{}, durable: `"durable":true,`}
	for _, cfg := range []*daemon.Config{&p.here, &p.there} {
		cfg.Lease = 700 * time.Millisecond
	}
	p.caller, p.other = w.serve(p.here), w.serve(p.there)
	w.worker("pdf", p.there.WorkerSocket, scriptSlots{N: 4, Types: []string{"pdf"}})
	p.awaitWorker()
	return p
}

// awaitWorker waits until the worker has connected, and the dispatcher of the callers knows of it.
func (p *pair) awaitWorker() {
	p.t.Helper()
	eventually(p.t, func() bool {
		refused := callerOn(p.t, p.here).request(`{"type":"pdf","durable":false}`)
		return slotsOf(p.there) == 4 && strings.Contains(refused.body, "slots of there do")
	}, func() string { return "four slots" })
}

// round starts calls, kills one of the two dispatchers with kill -9 at a random time, starts it
// again, and checks the outcome of every call.
func (p *pair) round(first int, killCaller bool, rng *rand.Rand) {
	const callers = 8
	c := callerOn(p.t, p.here)
	var calls sync.WaitGroup
	got := make([]durableCall, callers)
	for i := range callers {
		nap := time.Duration(rng.IntN(40)) * time.Millisecond
		calls.Go(func() { got[i] = c.callDurable(first+i, p.durable, i%2 == 0, nap) })
	}
	<-time.After(time.Duration(rng.IntN(80)) * time.Millisecond) // a random time
	if killCaller {
		p.caller.kill()
		p.caller = p.serve(p.here)
	} else {
		p.other.kill()
		p.other = p.serve(p.there)
		p.awaitWorker()
	}
	calls.Wait()
	c.client.CloseIdleConnections()
	for _, g := range got {
		p.settled(g, killCaller)
	}
}

// settled checks the row of a call: it is done, and its result equals the one that the caller
// received or can fetch.
func (p *pair) settled(g durableCall, died bool) {
	p.t.Helper()
	if p.durable == "" && strings.Contains(g.failed, "no-slot-supports-type") { // no dispatcher had a slot when it arrived
		require.Zero(p.t, p.number(`SELECT count(*) FROM dispatcherd.jobs WHERE (payload->'result'->>'n')::int = $1`, g.n))
		p.told["refused"]++
		return
	}
	require.Empty(p.t, g.failed)
	require.True(p.t, died || g.result != "", "request %d must be answered because its dispatcher was not killed", g.n)
	want := fmt.Sprintf(`{"n":%d}`, g.n)
	rows := p.number(`SELECT count(*) FROM dispatcherd.jobs WHERE (payload->'result'->>'n')::int = $1`, g.n)
	if rows == 0 { // the dispatcher was killed before it inserted the row
		require.Zero(p.t, g.job, "request %d has no row although its caller received an id", g.n)
		require.Empty(p.t, g.result)
		p.told["not inserted"]++
		return
	}
	require.Equal(p.t, 1, rows)
	id := dispatcherd.JobID(p.number(`SELECT id FROM dispatcherd.jobs WHERE (payload->'result'->>'n')::int = $1`, g.n))
	p.await(id, dispatcherd.Done)
	var shown struct {
		Status dispatcherd.Status
		Result json.RawMessage
	}
	text, err := askAPI(p.here, fmt.Sprint("/v1/jobs/", id))
	require.NoError(p.t, err)
	require.NoError(p.t, json.Unmarshal([]byte(text), &shown))
	require.Equal(p.t, dispatcherd.Done, shown.Status)
	require.JSONEq(p.t, want, string(shown.Result))
	if g.job != 0 {
		require.Equal(p.t, id, g.job)
	}
	switch {
	case g.result != "":
		require.JSONEq(p.t, want, g.result)
		p.told["answered"]++
	case g.job != 0:
		p.told["fetched with the reported id"]++
	default:
		p.told["inserted, id not reported"]++
	}
}

// Callers wait at one dispatcher for durable requests that only the workers of the other one
// can execute. One of the two is killed with kill -9 repeatedly. No request is lost. While the
// caller's dispatcher lives, the caller gets the answer. If it dies, the row is executed, ends
// once, and contains the result.
func TestNoDurableRequestIsLostWhenEitherDispatcherIsKilled(t *testing.T) {
	killInTurn(newPair(newWorld(t)))
}

// The same holds for requests that ask for no row, because they are served through the queue.
func TestNoRequestViaTheQueueIsLostWhenEitherDispatcherIsKilled(t *testing.T) {
	p := newPair(newWorld(t))
	p.durable = ""
	killInTurn(p)
}

func killInTurn(p *pair) {
	const kills = 8
	w, t := p.world, p.t
	rng := rand.New(rand.NewPCG(daemon.NewSeed()[0], 2))
	for n := range kills {
		p.round(1000*(n+1), n%2 == 0, rng)
	}
	t.Logf("%d kills: %v", kills, p.told)
	require.Positive(t, p.told["answered"])
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status <> 'done' OR failures > 0`))
	for id, starts := range w.seen.ofJobs("start") {
		last := w.get(id).Attempt
		for i, s := range starts {
			require.LessOrEqual(t, s.Attempt, last, "job %d ran after its end", id)
			require.True(t, i == 0 || s.Attempt > starts[i-1].Attempt, "job %d: each attempt must start once", id)
		}
	}
}
