package ondemand

import (
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

// Divide returns the payloads of the chunks for n workers or slots, and the number of items in each. No chunk is empty.
func (f *FanOut) Divide(n int) []Chunk {
	if f.Items == nil {
		chunks := make([]Chunk, len(f.Chunks))
		for i, payload := range f.Chunks {
			chunks[i].Payload = payload
		}
		return chunks
	}
	items, chunks := f.Items, make([]Chunk, min(n, len(f.Items)))
	for i := range chunks {
		c, left := &chunks[i], len(chunks)-i
		c.Items = (len(items) + left - 1) / left
		for _, item := range items[:c.Items] {
			c.Payload = append(append(c.Payload, ','), item...)
		}
		c.Payload[0] = '[' // replaces the comma before the first item
		c.Payload = append(c.Payload, ']')
		items = items[c.Items:]
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

// chunkCaller is the Caller of a chunk. It sends the answered chunk to a channel, which has room for all chunks.
type chunkCaller struct {
	AnswerOnly

	chunk *Chunk
	to    chan<- *Chunk
}

// Answered implements Caller.
func (c chunkCaller) Answered(a Answer) {
	c.chunk.Answer = a
	c.to <- c.chunk
}

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
	ids, answered := make([]dispatcherd.JobID, len(chunks)), make(chan *Chunk, len(chunks))
	for i := range chunks {
		c := &chunks[i]
		c.Offering = places[i%len(places)]
		request.Payload, request.Session = c.Payload, c.Session
		caller := chunkCaller{chunk: c, to: answered}
		var err error
		if ids[i], err = s.backend.Submit(ctx, request, caller); err != nil {
			caller.Answered(Answer{Kind: Failed, Reason: Explain(err).Detail})
		}
	}
	for range chunks {
		select {
		case c := <-answered:
			if err := held.Add(int64(len(c.Answer.Payload))); err != nil {
				c.Answer = Answer{Kind: Busy, Reason: "the result was dropped: " + Explain(err).Detail}
			}
		case <-ctx.Done():
			for i, id := range ids {
				if id != 0 { // one that was answered is not found
					s.backend.Abandon(id, chunkCaller{chunk: &chunks[i], to: answered})
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
