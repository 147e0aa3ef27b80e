package shell

import (
	"encoding/json"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Deliver passes the frames of a worker to the loop as events, in order. order returns when
// the Core has the event. It may also return earlier if no later event of the session can
// overtake the event. Results that
// arrive together become one event, up to ReportPortion. The same applies to reports.
// number assigns ids to new slots. logs says whether to pass on log frames. Other frames are ignored.
func Deliver(
	order func(actor.Event),
	id dispatcherd.SessionID,
	worker string,
	frames []workerproto.WorkerFrame,
	number func([]workerproto.Slot) []dispatcherd.Slot,
	logs bool,
) {
	var results []actor.Result
	var reports []contract.Report
	flush := func() {
		if len(reports) > 0 {
			order(actor.Reported{Session: id, Reports: reports})
			reports = nil
		}
		if len(results) > 0 {
			order(actor.Released{Session: id, Results: results})
			results = nil
		}
	}
	for _, f := range frames {
		if len(results) == ReportPortion || len(reports) == ReportPortion {
			flush()
		}
		if r, ok := resultOf(f); ok {
			if results == nil {
				results = make([]actor.Result, 0, min(len(frames), ReportPortion))
			}
			results = append(results, r)
			continue
		}
		if r, ok := reportOf(f, logs); ok {
			if len(results) > 0 {
				flush()
			}
			reports = append(reports, r)
			continue
		}
		flush()
		switch f := f.(type) {
		case *workerproto.SlotAdd:
			Register(order, actor.Registered{Session: id, Worker: worker, Slots: number(f.Slots)}, Portion)
		case *workerproto.SlotRemove:
			order(actor.Withdrew{Session: id, Numbers: f.Slots})
		case *workerproto.Spawn:
			order(actor.SpawnRequested{Request: &contract.SpawnRequest{
				Session: id, Parent: f.Job, Attempt: f.Attempt, Number: f.Request, Jobs: f.Jobs, Detached: f.Detached,
			}})
		case *workerproto.Drain:
			order(actor.Withdrew{Session: id})
		case *workerproto.Goodbye:
			order(actor.Withdrew{Session: id, Goodbye: true})
		}
	}
	flush()
}

// Number assigns consecutive ids to the slots of a worker, whose types are sorted as in a decoded frame. last is the id of the last
// slot.
func Number(slots []workerproto.Slot, last dispatcherd.SlotID) []dispatcherd.Slot {
	numbered := make([]dispatcherd.Slot, len(slots))
	for i, s := range slots {
		numbered[i] = dispatcherd.Slot{ID: last - dispatcherd.SlotID(len(slots)-1-i), Number: s.Number, Types: s.Types}
	}
	return numbered
}

// resultOf translates the frames that end an attempt.
func resultOf(f workerproto.WorkerFrame) (actor.Result, bool) {
	switch f := f.(type) {
	case *workerproto.Done:
		return actor.Result{Job: f.Job, Attempt: f.Attempt, OK: true, Value: f.Result}, true
	case *workerproto.Fail:
		return actor.Result{
			Job: f.Job, Attempt: f.Attempt, Error: f.Error, Permanent: f.Permanent, RetryAfter: f.RetryAfter,
		}, true
	case *workerproto.Release:
		return actor.Result{Job: f.Job, Attempt: f.Attempt, Returned: true, Error: f.Reason}, true
	}
	return actor.Result{}, false
}

// reportOf translates the frames about an attempt that continues.
func reportOf(f workerproto.WorkerFrame, logs bool) (contract.Report, bool) {
	switch f := f.(type) {
	case *workerproto.Progress:
		return contract.Report{Job: f.Job, Attempt: f.Attempt, JSON: progressJSON(f)}, true
	case *workerproto.Partial:
		return contract.Report{Job: f.Job, Attempt: f.Attempt, Partial: true, JSON: f.Data}, true
	case *workerproto.Log:
		return contract.Report{Job: f.Job, Attempt: f.Attempt, Log: string(f.Level) + ": " + f.Message + "\n"}, logs
	}
	return contract.Report{}, false
}

// progressJSON returns the progress of a frame as callers get it.
func progressJSON(f *workerproto.Progress) []byte {
	text, _ := json.Marshal(struct { // numbers and a text cannot fail
		Done    int64  `json:"done"`
		Total   int64  `json:"total"`
		Message string `json:"message,omitempty"`
	}{f.Done, f.Total, f.Message})
	return text
}

// Portion is the size of the largest event that registers slots or cancels jobs. It
// bounds the time for which such an event keeps the loop from other events. The size of a slot is
// the number of its types plus slotSize. A slot that is larger than a portion is an
// event of its own.
const Portion = 4096

// ReportPortion is the most results or reports of one event.
const ReportPortion = 1024

// slotSize is the cost of a slot beside that of its types, relative to the cost of
// a type.
const slotSize = 10

// Register passes the slots and the resume offers of an event to register, in events
// of at most the size most. All offers come before all slots.
func Register(register func(actor.Event), ev actor.Registered, most int) {
	slots := ev.Slots
	ev.Slots = nil
	for offers := ev.Offers; len(offers) > 0; {
		n := portion(len(offers), most, func(i int) int { return len(offers[i].Slot.Types) })
		ev.Offers, offers = offers[:n], offers[n:]
		ev.MoreOffers = len(offers) > 0
		register(ev)
		if len(offers) == 0 && len(slots) == 0 {
			return
		}
	}
	for ev.Offers = nil; ; {
		n := portion(len(slots), most, func(i int) int { return len(slots[i].Types) })
		ev.Slots, slots = slots[:n], slots[n:]
		register(ev)
		if len(slots) == 0 {
			return
		}
	}
}

// portion returns how many of the n slots fit into a portion, at least one.
func portion(n, most int, types func(int) int) int {
	total := 0
	for i := range n {
		if total += slotSize + types(i); total > most {
			return max(1, i)
		}
	}
	return n
}
