package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Offerings implements ondemand.Backend.
func (b *Backend) Offerings(typ string) (list []ondemand.Offering) {
	slots := actor.ListSlots(typ, b.Loop)
	bySession := map[dispatcherd.SessionID]*ondemand.Offering{}
	for i := range slots {
		s := &slots[i]
		if s.Draining {
			continue
		}
		if bySession[s.Session] == nil {
			bySession[s.Session] = &ondemand.Offering{Session: s.Session, Worker: s.Worker}
		}
		bySession[s.Session].Slots++
	}
	for _, id := range slices.Sorted(maps.Keys(bySession)) {
		list = append(list, *bySession[id])
	}
	return list
}

// ClusterSlots implements httpapi.Backend.
func (b *Backend) ClusterSlots(typ string) (n int) {
	b.Loop.Ask(func(c *actor.Core) {
		own, others := c.Capacity(typ)
		n = own + others
	})
	return n
}

// InsertBatch implements httpapi.Backend.
func (b *Backend) InsertBatch(ctx context.Context, f *ondemand.FanOut, payloads []json.RawMessage) (dispatcherd.JobID, error) {
	for i, p := range payloads {
		if err := jsontext.CheckPayload(p); err != nil {
			return 0, rest.InvalidJob.Of(fmt.Sprintf("chunk %d cannot be sent to a worker: %v", i+1, err))
		}
	}
	job := claim.New{Type: f.Type, Priority: f.Priority, Timeout: f.Timeout, Expected: f.Expected, Traceparent: f.Traceparent}
	id, err := within(ctx, func(ctx context.Context) (dispatcherd.JobID, error) {
		return b.jobs().InsertBatch(ctx, job, payloads)
	})
	if err == nil {
		b.Loop.Notify()
	}
	return id, err
}
