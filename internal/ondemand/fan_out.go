package ondemand

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// MaxChunks bounds the chunks of a fan-out.
const MaxChunks = 1000

// FanOut is a task for all workers of this dispatcher that offer a type (article 2, "room
// task"). Each chunk is one request, which only its worker may run, once.
type FanOut struct {
	Request      // of each request, without what is for one caller only
	PerSlot bool // a chunk for each slot instead of for each worker
	// Items are divided into as many contiguous chunks as there are workers or slots. The
	// sizes of the chunks differ by at most 1. The payload of a chunk is an array of items.
	Items []json.RawMessage
	// Chunks are the payloads of the requests, instead of Items. Workers or slots get them in
	// turn.
	Chunks []json.RawMessage
}

// Offering is a session of a worker that offers a type.
type Offering struct {
	Session dispatcherd.SessionID
	Worker  string
	Slots   int // that support the type and take jobs; at least 1
}

// Chunk is a part of a fan-out and its answer.
type Chunk struct {
	Offering

	Payload []byte
	Items   int // number of items in it; 0 for a chunk that the caller has made
	Answer  Answer
}

// Divide returns the sizes of n chunks of items, which differ by at most 1. It omits empty
// chunks.
func Divide(items, n int) []int {
	sizes := make([]int, min(items, n))
	for i := range sizes {
		sizes[i] = items / n
		if i < items%n {
			sizes[i]++
		}
	}
	return sizes
}

// Divide returns the payloads of the chunks for n workers or slots, and the number of items in each.
func (f *FanOut) Divide(n int) []Chunk {
	if f.Items == nil {
		chunks := make([]Chunk, len(f.Chunks))
		for i, payload := range f.Chunks {
			chunks[i].Payload = payload
		}
		return chunks
	}
	sizes, at := Divide(len(f.Items), n), 0
	chunks := make([]Chunk, len(sizes))
	for i, size := range sizes {
		items := make([][]byte, size)
		for k := range items {
			items[k] = f.Items[at+k]
		}
		chunks[i] = Chunk{Items: size, Payload: append(append([]byte{'['}, bytes.Join(items, []byte{','})...), ']')}
		at += size
	}
	return chunks
}

// CheckFanOut returns the first option that is not allowed, as a problem.
func (s *Service) CheckFanOut(f *FanOut) error {
	if err := s.Check(&f.Request); err != nil {
		return err
	}
	switch {
	case (f.Items == nil) == (f.Chunks == nil):
		return rest.InvalidRequest.Of("give items, which the dispatcher divides, or chunks")
	case len(f.Items)+len(f.Chunks) == 0:
		return rest.InvalidRequest.Of("there is nothing to distribute: give at least one item or chunk")
	case len(f.Chunks) > MaxChunks:
		return rest.InvalidRequest.Of(fmt.Sprintf("there are %d chunks, at most %d are allowed", len(f.Chunks), MaxChunks))
	}
	return nil
}

// numbered is a Caller that sends its answer and the number of its chunk to a channel, which has room for the answers of all chunks.
type numbered struct {
	AnswerOnly

	chunk int
	to    chan<- numberedAnswer
}

type numberedAnswer struct {
	Answer

	chunk int
}

// Answered implements Caller.
func (c numbered) Answered(a Answer) { c.to <- numberedAnswer{a, c.chunk} }

// FanOut distributes a checked fan-out and waits for all answers. It does not retry. If ctx
// ends first, it cancels all requests and returns the problem CallerGone. If no worker
// offers the type, it returns the problem NoSlot. The results count towards held. A result that exceeds the
// share of the user is dropped, and its chunk has failed.
func (s *Service) FanOut(ctx context.Context, f *FanOut, held *Body) ([]Chunk, error) {
	places := places(s.backend.Offerings(f.Type), f.PerSlot)
	if len(places) == 0 {
		return nil, rest.NoSlot.Of(fmt.Sprintf("no worker of this dispatcher offers type %q", f.Type))
	}
	chunks := f.Divide(min(len(places), MaxChunks))
	request := s.submittable(&f.Request)
	ids, answers := make([]dispatcherd.JobID, len(chunks)), make(chan numberedAnswer, len(chunks))
	for i := range chunks {
		c := &chunks[i]
		c.Offering = places[i%len(places)]
		request.Payload, request.Session = c.Payload, c.Session
		caller := numbered{chunk: i, to: answers}
		var err error
		if ids[i], err = s.backend.Submit(ctx, request, caller); err != nil {
			caller.Answered(Answer{Kind: Failed, Reason: Explain(err).Detail})
		}
	}
	for range chunks {
		select {
		case a := <-answers:
			if err := held.Add(int64(len(a.Payload))); err != nil {
				a.Answer = Answer{Kind: Busy, Reason: "the result was dropped: " + Explain(err).Detail}
			}
			chunks[a.chunk].Answer = a.Answer
		case <-ctx.Done():
			for i := range chunks {
				if chunks[i].Answer.Kind == 0 && ids[i] != 0 { // one that was answered meanwhile is not found
					s.backend.Abandon(ids[i], numbered{chunk: i, to: answers})
				}
			}
			return nil, rest.CallerGone.Of("")
		}
	}
	return chunks, nil
}

// places returns the offerings as often as they get a chunk: once for each worker, or for
// each of its slots.
func places(offerings []Offering, perSlot bool) (list []Offering) {
	for _, o := range offerings {
		n := 1
		if perSlot {
			n = o.Slots
		}
		for range n {
			list = append(list, o)
		}
	}
	return list
}
