package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/worker"
)

// hostProcess is the hidden first argument that makes this program a host of a replay. The other argument is a hostPlan.
const hostProcess = "placement-host"

// hostPlan says what a host of a replay does.
type hostPlan struct {
	Trace string             `json:"trace"` // its folder
	Host  int                `json:"host"`  // number of the host; it has every placementHosts-th slot
	Begin time.Time          `json:"begin"`
	Way   program.Dispatcher `json:"way"`
	Log   string             `json:"log"` // file in which it writes when it adds and removes slots
}

// host is a running hostPlan. Each slot of the trace is a worker of its own, so that the decision log names it.
type host struct {
	hostPlan

	mu  sync.Mutex
	log *os.File
}

// serveHost runs the workers of a host until ctx ends.
func serveHost(ctx context.Context, text string) (err error) {
	h := &host{}
	if err := json.Unmarshal([]byte(text), &h.hostPlan); err != nil {
		return err
	}
	t, err := trace.Load(h.Trace)
	if err != nil {
		return err
	}
	if h.log, err = os.Create(h.Log); err != nil {
		return err
	}
	events := map[int64][]trace.SlotEvent{}
	for _, e := range t.Registrations() {
		events[e.Slot] = append(events[e.Slot], e)
	}
	all, ctx := errgroup.WithContext(ctx)
	for i, s := range t.Slots {
		if i%placementHosts == h.Host {
			all.Go(func() error { return h.serve(ctx, s, events[s.ID]) })
		}
	}
	fmt.Println("ready")
	return all.Wait()
}

// serve runs the worker of a slot.
func (h *host) serve(ctx context.Context, s trace.Slot, events []trace.SlotEvent) error {
	w := worker.New(h.Way.Options(worker.Options{Name: slotName(s.ID), Grace: time.Second}))
	for _, typ := range s.Types {
		w.Handle(typ, work)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var numbers []int32
	for _, e := range events {
		if rig.Pause(ctx, time.Until(h.Begin.Add(compressed(e.AtMS)))) != nil {
			break
		}
		if e.Kind == trace.Drain {
			h.note(s.ID, "remove")
			w.RemoveSlots(numbers...)
			continue
		}
		h.note(s.ID, "add")
		var err error
		if numbers, err = w.AddSlots(1, s.Types...); err != nil {
			return err
		}
	}
	return <-ended
}

func (h *host) note(slot int64, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := fmt.Fprintln(h.log, time.Now().UnixNano(), slotName(slot), what); err != nil {
		panic(err) // without its log the replay proves nothing
	}
}

// work lasts as long as the payload says.
func work(ctx context.Context, job *worker.Job) (any, error) {
	var plan struct{ MS float64 }
	if err := job.Decode(&plan); err != nil {
		return nil, err
	}
	return nil, rig.Pause(ctx, time.Duration(plan.MS*float64(time.Millisecond)))
}
