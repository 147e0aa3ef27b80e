package backend

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// unobserved is an httpapi.Observer that does nothing.
type unobserved struct{}

// Responded implements httpapi.Observer.
func (unobserved) Responded(string, int, time.Duration) {}

// Failed implements httpapi.Observer.
func (unobserved) Failed(string, error) {}

// Refused implements httpapi.Observer.
func (unobserved) Refused(httpapi.Bound) {}

// Denied implements httpapi.Observer.
func (unobserved) Denied(workerproto.Peer, string) {}

// slowSlots is an actor.Performer with slots that take a fixed time for each job, and an
// empty table. Its slots ignore Cancel.
type slowSlots struct {
	loop     *actor.Actor
	requests *Requests
	service  time.Duration
}

// Perform implements actor.Performer.
func (w *slowSlots) Perform(fx []effect.Effect) {
	for i := range fx {
		switch e := fx[i].(type) {
		case *effect.Fetch:
			request := e.Request
			time.AfterFunc(time.Millisecond, func() {
				w.loop.Result(actor.Fetched{Request: request, Result: contract.FetchResult{Verdict: contract.OK}})
			})
		case *effect.Send:
			result := actor.Result{Job: e.Job, Attempt: e.Attempt, OK: true}
			time.AfterFunc(w.service, func() {
				w.loop.Order(actor.Released{Session: 1, Results: []actor.Result{result}})
			})
		case *effect.Answer:
			w.requests.Answer(e)
		case *effect.Started:
			w.requests.Started(e)
		}
	}
}

// open returns the API of a dispatcher with slots of one type.
func (w *slowSlots) open(t *testing.T, slots int) *httpapi.Handler {
	core := actor.DefaultConfig()
	w.loop = actor.NewActor(actor.New(core), nil)
	w.requests = NewRequests(w.loop)
	w.loop.Start(w)
	t.Cleanup(w.loop.Stop)
	ev := actor.Registered{Session: 1, Worker: "w"}
	for i := range slots {
		ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(i + 1), Number: int32(i), Types: []string{"pdf"}})
	}
	w.loop.Order(ev)
	h := httpapi.New(httpapi.DefaultConfig(),
		New(Config{
			Loop: w.loop, Requests: w.requests, ReconnectGrace: core.ReconnectGrace, Others: func() map[string]int { return nil },
		}), unobserved{},
		http.NotFoundHandler())
	t.Cleanup(h.Close)
	return h
}

// The load is three times the capacity. The callers use every way to wait. In simulated
// time, each answer arrives at most 50 ms after the deadline. An end-to-end test checks the
// median over sockets.
func TestEachCallerIsAnsweredWithin50msOfItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, service, load, lasts, soon = 4, 500 * time.Millisecond, 3, 5 * time.Minute, 50 * time.Millisecond
		h := (&slowSlots{service: service}).open(t, slots)
		ways := []string{"alone", "with events", "with a key", "in a shared request"}
		rng := rand.New(rand.NewPCG(5, 5))
		var mu sync.Mutex
		ends := map[string]int{}
		var latest time.Duration
		var calls sync.WaitGroup
		for n, began := 0, time.Now(); time.Since(began) < lasts; n++ {
			way, timeout := ways[n%len(ways)], time.Duration(100+rng.IntN(8000))*time.Millisecond
			body := fmt.Sprintf(`{"type":"pdf","timeout":"%v","priority":%d}`, timeout, rng.IntN(11))
			if way == "in a shared request" {
				body = fmt.Sprintf(`{"type":"pdf","timeout":"%v","priority":8,"coalesce_key":"%d"}`, timeout, n/8) // of two callers
			}
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/requests", strings.NewReader(body))
			switch way {
			case "with events":
				req.Header.Set("Accept", "text/event-stream")
			case "with a key":
				req.Header.Set("Idempotency-Key", strconv.Itoa(n))
			}
			calls.Go(func() {
				asked, rec := time.Now(), httptest.NewRecorder()
				h.ServeHTTP(rec, req)
				past := time.Since(asked) - timeout
				end := "done"
				if strings.Contains(rec.Body.String(), "deadline-passed") {
					end = "late"
				} else if rec.Code != http.StatusOK {
					end = rec.Body.String()
				}
				mu.Lock()
				defer mu.Unlock()
				ends[way+": "+end]++
				latest = max(latest, past)
				if past > soon || end == "late" && past < -time.Millisecond { // the loop counts milliseconds
					t.Errorf("%s: the end %s arrived %v after the deadline", way, end, past)
				}
			})
			time.Sleep(time.Duration(2 * rng.Float64() * float64(service) / slots / load))
		}
		calls.Wait()
		t.Logf("the latest answer arrived %v after its deadline; %v", latest, ends)
		require.Len(t, ends, 2*len(ways), "%v", ends)
		for _, way := range ways {
			require.Greater(t, ends[way+": late"], 100, "the load exceeds the capacity")
		}
	})
}
