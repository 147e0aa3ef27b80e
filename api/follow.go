package api

import (
	"context"
	"net/http"
	"time"
)

// follower is one caller of a run.
type follower struct {
	h         *Handler
	run       *run
	key       string        // his Idempotency-Key's entry in the runs; "" = none
	due       time.Time     // the caller's own deadline; zero = the run's
	impatient time.Duration // how long to wait for a worker of a run that is his alone; 0 = not at all, or for ever
	need      *need         // of a run that is shared
	late      bool          // due is over, and he has been told
}

// clocks are the follower's timers; a nil channel never fires.
type clocks struct{ deadline, impatient *time.Timer }

func (f *follower) clocks() clocks {
	var c clocks
	if !f.due.IsZero() {
		c.deadline = time.NewTimer(time.Until(f.due))
	}
	if f.impatient > 0 || f.need != nil {
		c.impatient = time.NewTimer(f.impatient)
	}
	return c
}

func (c clocks) stop() {
	for _, t := range []*time.Timer{c.deadline, c.impatient} {
		if t != nil {
			t.Stop()
		}
	}
}

func fires(t *time.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C
}

// next waits until the run has changed. An error is the caller's end.
func (f *follower) next(ctx context.Context, v *view, c *clocks, heartbeat <-chan time.Time) error {
	for {
		select {
		case <-v.changed:
			return nil
		case <-fires(c.impatient):
			if f.need != nil {
				again := f.need.look(f.h.backend, v.job)
				if again == 0 {
					return noSlot.of("no slot supports the type, and none came in time")
				}
				c.impatient.Reset(again)
				continue
			}
			c.impatient = nil
			if v.job < 0 {
				f.h.backend.Impatient(v.job)
			}
		case <-fires(c.deadline):
			f.late = true
			return deadlinePassed.of(f.run.lateReason(v.job)).about(v.job)
		case <-heartbeat:
			return nil
		case <-ctx.Done():
			return callerGone.of("")
		}
	}
}

// answer waits for the end and sends it like the short way does.
func (f *follower) answer(w http.ResponseWriter, r *http.Request) error {
	c := f.clocks()
	defer c.stop()
	for {
		v := f.run.look(1)
		if v.failure != nil {
			return v.failure
		}
		if v.answer != nil {
			f.h.extendWrite(w)
			return writeAnswer(w, v.job, dueAnswer(v.answer, f.due))
		}
		if err := f.next(r.Context(), &v, &c, nil); err != nil {
			f.h.extendWrite(w)
			return err
		}
	}
}

// accepted tells where the answer will be.
func (f *follower) accepted(w http.ResponseWriter) error {
	v := f.run.look(1)
	if v.failure != nil {
		return v.failure
	}
	if v.answer != nil && !v.started && v.answer.Kind != Done {
		return problemOfAnswer(v.answer).about(v.job) // refused at once: there is nothing to come back for
	}
	w.Header().Set("Preference-Applied", "respond-async")
	f.sendState(w, &v)
	return nil
}

// RunState is what is told about a run that has not ended.
type RunState struct {
	ID    string `json:"id"`
	State string `enum:"queued,running,ended"         json:"state"`
	Job   int64  `doc:"The row of a durable request." json:"job,omitempty"`
}

func (f *follower) sendState(w http.ResponseWriter, v *view) {
	state := RunState{ID: f.run.id, State: "queued", Job: int64(max(v.job, 0))}
	if v.started {
		state.State = "running"
	}
	location := "/v1/requests/" + f.run.id
	if v.answer != nil {
		state.State = "ended"
	} else {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Location", location)
	answerJSON(w, http.StatusAccepted, state)
}

// getRequest tells about a kept run: its answer, its events, or that it goes on.
func (h *Handler) getRequest(w http.ResponseWriter, r *http.Request) error {
	stream, err := wantsStream(r)
	if err != nil {
		return err
	}
	run := h.runs.find(r.PathValue("id"))
	if run == nil {
		return notFound.of("no request has that id, or it ended too long ago")
	}
	defer run.leave(false, "")
	f := follower{h: h, run: run}
	v := run.look(1)
	switch {
	case stream && r.Method == http.MethodHead && v.failure == nil:
		h.newSSE(w)
		return nil
	case stream:
		return f.stream(w, r)
	}
	switch {
	case v.failure != nil:
		return v.failure
	case v.answer != nil:
		return writeAnswer(w, v.job, v.answer)
	}
	f.sendState(w, &v)
	return nil
}

// deleteRequest cancels a run that goes on; one that has ended is forgotten.
func (h *Handler) deleteRequest(w http.ResponseWriter, r *http.Request) error {
	run := h.runs.find(r.PathValue("id"))
	if run == nil {
		return notFound.of("no request has that id, or it ended too long ago")
	}
	defer run.leave(false, "")
	run.giveUp(Answer{Kind: Cancelled, Reason: "it was cancelled"})
	w.WriteHeader(http.StatusNoContent)
	return nil
}
