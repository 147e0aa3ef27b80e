package ondemand

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

func TestSizesOfChunksDifferByAtMostOne(t *testing.T) {
	divide := func(n, places int) (sizes []int) {
		for _, c := range (&FanOut{Items: items(n)}).Divide(places) {
			sizes = append(sizes, c.Items)
			require.Equal(t, c.Items, bytes.Count(c.Payload, []byte{','})+1)
		}
		return sizes
	}
	require.Equal(t, []int{3, 3, 3}, divide(9, 3), "article 2: 3 workers and 9 items")
	require.Equal(t, []int{4, 3, 3}, divide(10, 3))
	require.Equal(t, []int{1, 1}, divide(2, 3), "no chunk is empty")
	rapid.Check(t, func(t *rapid.T) {
		items, n := rapid.IntRange(1, 1000).Draw(t, "items"), rapid.IntRange(1, 100).Draw(t, "n")
		sizes, sum := divide(items, n), 0
		for _, size := range sizes {
			require.Positive(t, size)
			require.LessOrEqual(t, size-sizes[len(sizes)-1], 1)
			require.GreaterOrEqual(t, size, sizes[len(sizes)-1])
			sum += size
		}
		require.Equal(t, items, sum)
		require.Len(t, sizes, min(items, n))
	})
}

// workers is a backend with workers. It answers a request with its payload, and those of
// silent sessions never.
type workers struct {
	backend

	offerings []Offering
	silent    dispatcherd.SessionID
	refused   dispatcherd.SessionID // its requests are refused by Submit
	requests  []Request
	abandoned []dispatcherd.JobID
	waiting   func() // called when a request of the silent session was submitted
}

func (w *workers) Offerings(string) []Offering { return w.offerings }

func (w *workers) Submit(_ context.Context, r Request, c Caller) (dispatcherd.JobID, error) {
	w.requests = append(w.requests, r)
	id := dispatcherd.JobID(-len(w.requests))
	switch r.Session {
	case w.refused:
		return 0, ErrStopping
	case w.silent:
		w.waiting()
	default:
		c.Answered(Answer{Kind: Done, Payload: r.Payload, Worker: "w" + strconv.Itoa(int(r.Session))})
	}
	return id, nil
}

func (w *workers) Abandon(id dispatcherd.JobID, _ Caller) { w.abandoned = append(w.abandoned, id) }

func distribute(t *testing.T, w *workers, f *FanOut) ([]Chunk, error) {
	s := New(newLimits(), w, func(Bound) {})
	t.Cleanup(s.Close)
	f.Type = "pdf"
	require.NoError(t, s.CheckFanOut(f))
	return s.FanOut(t.Context(), f, s.NewBody(""))
}

func items(n int) (list []json.RawMessage) {
	for i := range n {
		list = append(list, json.RawMessage(strconv.Itoa(i+1)))
	}
	return list
}

func payloads(chunks []Chunk) (list []string) {
	for i := range chunks {
		list = append(list, string(chunks[i].Answer.Payload))
	}
	return list
}

// Article 2: 9 items on 3 workers are 3 items each.
func TestRoomTaskOf9ItemsOn3WorkersIs3ItemsEach(t *testing.T) {
	w := &workers{
		offerings: []Offering{{Session: 1, Worker: "a", Slots: 2}, {Session: 5, Worker: "b", Slots: 1}, {Session: 7, Worker: "c", Slots: 1}},
	}
	chunks, err := distribute(t, w, &FanOut{Items: items(9), Request: Request{Options: Options{Priority: 3, Expected: time.Hour}}})
	require.NoError(t, err)
	require.Equal(t, []string{"[1,2,3]", "[4,5,6]", "[7,8,9]"}, payloads(chunks))
	for i, session := range []dispatcherd.SessionID{1, 5, 7} {
		require.Equal(t, session, w.requests[i].Session)
		require.EqualValues(t, 3, w.requests[i].Priority)
		require.Equal(t, time.Minute, w.requests[i].Timeout, "the default")
		require.Equal(t, time.Hour, w.requests[i].Expected)
		require.Equal(t, 3, chunks[i].Items)
	}
}

func TestChunksPerSlotGoToTheWorkerOfTheSlot(t *testing.T) {
	w := &workers{offerings: []Offering{{Session: 1, Worker: "a", Slots: 2}, {Session: 5, Worker: "b", Slots: 1}}}
	chunks, err := distribute(t, w, &FanOut{Items: items(4), PerSlot: true})
	require.NoError(t, err)
	require.Equal(t, []string{"[1,2]", "[3]", "[4]"}, payloads(chunks))
	require.Equal(t, []string{"a", "a", "b"}, []string{chunks[0].Worker, chunks[1].Worker, chunks[2].Worker})
}

func TestWorkersGetGivenChunksInTurn(t *testing.T) {
	w := &workers{offerings: []Offering{{Session: 1, Worker: "a", Slots: 1}, {Session: 5, Worker: "b", Slots: 1}}}
	chunks, err := distribute(t, w, &FanOut{Chunks: items(3)})
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2", "3"}, payloads(chunks))
	require.Equal(t, []string{"a", "b", "a"}, []string{chunks[0].Worker, chunks[1].Worker, chunks[2].Worker})
}

func TestChunkThatCannotBeSubmittedHasAnError(t *testing.T) {
	w := &workers{offerings: []Offering{{Session: 1, Worker: "a", Slots: 1}, {Session: 5, Worker: "b", Slots: 1}}, refused: 5}
	chunks, err := distribute(t, w, &FanOut{Items: items(2)})
	require.NoError(t, err)
	require.Equal(t, Done, chunks[0].Answer.Kind)
	require.Equal(t, Answer{Kind: Failed, Reason: ErrStopping.Detail}, chunks[1].Answer)
}

// Attack 18, first part.
func TestFanOutWithoutAWorkerIsRefused(t *testing.T) {
	_, err := distribute(t, &workers{}, &FanOut{Items: items(2)})
	require.ErrorContains(t, err, rest.NoSlot.Title)
	require.Equal(t, 503, Explain(err).Status)
}

// Attack 18, second part.
func TestAllChunksAreCancelledWhenTheCallerDisconnects(t *testing.T) {
	ctx, disconnect := context.WithCancel(t.Context())
	w := &workers{offerings: []Offering{{Session: 1, Slots: 1}, {Session: 5, Slots: 2}}, silent: 5, waiting: disconnect}
	s := New(newLimits(), w, func(Bound) {})
	t.Cleanup(s.Close)
	_, err := s.FanOut(ctx, &FanOut{Request: Request{Options: Options{Type: "pdf"}}, PerSlot: true, Items: items(3)}, s.NewBody(""))
	require.ErrorContains(t, err, rest.CallerGone.Title)
	require.Subset(t, w.abandoned, []dispatcherd.JobID{-2, -3}, "the first one may be answered before")
}

func TestFanOutOptionsAreChecked(t *testing.T) {
	s, _ := newService(t)
	for want, f := range map[string]FanOut{
		"give items":            {Request: Request{Options: Options{Type: "pdf"}}},
		"or chunks":             {Request: Request{Options: Options{Type: "pdf"}}, Items: items(1), Chunks: items(1)},
		"nothing to distribute": {Request: Request{Options: Options{Type: "pdf"}}, Items: []json.RawMessage{}},
		"1001 chunks":           {Request: Request{Options: Options{Type: "pdf"}}, Chunks: items(MaxChunks + 1)},
		"type":                  {Items: items(1)},
		"priority":              {Request: Request{Options: Options{Type: "pdf", Priority: 11}}, Items: items(1)},
	} {
		require.ErrorContains(t, s.CheckFanOut(&f), want)
	}
}
