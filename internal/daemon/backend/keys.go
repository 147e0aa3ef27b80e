package backend

import (
	"context"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// laneReasons are reasons of the Core about the order in which rows are read and claimed. A job that waits for permits is in
// no lane, so they say nothing about it.
var laneReasons = []actor.Reason{
	actor.ReasonClaimRaceLost,
	actor.ReasonUnread,
	actor.ReasonOtherShare,
	actor.ReasonAwaitsFetch,
	actor.ReasonClaimsFull,
	actor.ReasonOutranked,
	actor.ReasonCapacityBusy,
}

// addKeys explains why a job with keys has no permits.
func (b *Backend) addKeys(ctx context.Context, why *httpapi.Why, job *contract.Job) {
	if job.Keys == nil {
		return
	}
	why.Keys = *job.Keys
	if job.Status != dispatcherd.Pending || job.Fence != nil {
		return
	}
	why.Reasons = slices.DeleteFunc(why.Reasons, func(r string) bool { return slices.Contains(laneReasons, actor.Reason(r)) })
	why.Ranks, why.Slot = contract.Ranks{}, 0
	class := permits.Class{Keys: *job.Keys, Type: job.Type, Priority: int16(job.Priority)}
	var w permits.Waiting
	if !b.Book(ctx, func(book *permits.Book) {
		w = book.Explain(class, permits.Job{RunAt: job.RunAt.UnixMicro(), ID: int64(job.ID)})
	}) {
		why.Reasons = append([]string{httpapi.ReasonKeyElsewhere}, why.Reasons...)
		why.KeyWait = b.keyWait(ctx, *job.Keys, parentWithKey(job))
		return
	}
	if reason := keyReasons[w.Reason]; reason != "" {
		why.Reasons = append([]string{reason}, why.Reasons...)
		why.KeyWait = keyWaitView(&w)
		why.KeyWait.Parent = parentWithKey(job)
	}
	if w.Key != "" { // slots do not matter
		why.Slots = nil
	}
	if w.Reason == permits.KeyPaused || w.Reason == permits.KeyCost || w.Reason == permits.KeyRate {
		why.Overtaking = nil // it waits for no other job
	}
	if why.Expected != nil {
		why.Expected.PassedBy = nil // others pass it until it has its permits
	}
	if w.Reason == permits.TypeUnknown && len(why.Slots) > 0 { // the controller will learn of them
		why.Reasons = append(why.Reasons, httpapi.ReasonHeld)
	} else if w.Reason == permits.TypeUnknown && !slices.Contains(why.Reasons, string(actor.ReasonTypeUnknown)) &&
		!slices.Contains(why.Reasons, string(actor.ReasonNoCapacity)) {
		why.Reasons = append(why.Reasons, string(actor.ReasonTypeUnknown))
	}
}

// parentWithKey returns the parent of a job with keys if it has permits of one of these keys.
func parentWithKey(job *contract.Job) *int64 {
	if job.ParentKeys == nil {
		return nil
	}
	needs, _ := permits.Parse(*job.Keys)
	held, _ := permits.Parse(*job.ParentKeys)
	for _, h := range held {
		if slices.ContainsFunc(needs, func(n permits.Need) bool { return n.Key == h.Key }) {
			return job.Parent
		}
	}
	return nil
}

// keyReasons are the reasons of the book as the API names them. The Core knows the others: the job is not due, or its type is unknown.
var keyReasons = map[permits.Reason]string{
	permits.KeyBusy:   httpapi.ReasonKeyBusy,
	permits.KeyOrder:  httpapi.ReasonKeyOrder,
	permits.KeyRate:   httpapi.ReasonKeyRate,
	permits.KeyPaused: httpapi.ReasonKeyPaused,
	permits.KeyCost:   httpapi.ReasonKeyCost,
	permits.Ready:     httpapi.ReasonHeld,
	permits.TypeFull:  httpapi.ReasonHeld,
	permits.NotRead:   httpapi.ReasonHeld,
}

// heldDetails say what the controller waits for.
var heldDetails = map[permits.Reason]string{
	permits.Ready:    "the controller admits it in its next step",
	permits.TypeFull: "enough admitted jobs of its type wait for a slot",
	permits.NotRead:  "the controller reads it after the jobs before it",
}

func keyWaitView(w *permits.Waiting) *httpapi.KeyWait {
	k := &httpapi.KeyWait{
		Key:      w.Key,
		Held:     w.Held,
		Capacity: &w.Capacity,
		Holders:  w.Holders,
		Alone:    w.Alone,
		First:    w.First,
		Detail:   heldDetails[w.Reason],
	}
	if w.Capacity == permits.Unlimited {
		k.Capacity = nil
	}
	if w.Scope == permits.Dispatcher {
		k.Scope = contract.DispatcherScope
	}
	if w.RetryAt > 0 {
		k.RetryAt = new(time.UnixMicro(w.RetryAt))
	}
	if w.Reason == permits.KeyBusy || w.Reason == permits.KeyOrder || w.Reason == permits.KeyRate {
		k.Position, k.AtLeast = w.Ahead+1, w.AtLeast
	}
	if w.Reason == permits.KeyRate && w.At > 0 {
		k.At = new(time.UnixMicro(w.At))
	}
	return k
}

// maxHoldersShown bounds the holders of an explanation.
const maxHoldersShown = 10

// keyWait says what the table says about the first key that has no room for a job. Without an answer of Postgres it says nothing.
func (b *Backend) keyWait(ctx context.Context, keys string, parent *int64) *httpapi.KeyWait {
	needs, err := permits.Parse(keys)
	if err != nil {
		return nil
	}
	names := make([]string, len(needs))
	for i := range needs {
		names[i] = needs[i].Key
	}
	table := limitstore.Keys{DB: b.Pool}
	states, err := about(ctx, table.Held, names)
	if err != nil {
		return nil
	}
	first := 0
	for i := range states {
		if full(&states[i].KeySummary, needs[i].Cost) {
			first = i
			break
		}
	}
	s := &states[first]
	k := &httpapi.KeyWait{Key: s.Key, Held: s.Held, Alone: s.Alone, Parent: parent}
	if s.Limit.Scope == contract.DispatcherScope {
		k.Scope = s.Limit.Scope
	}
	if s.Limit.Capacity != nil {
		k.Capacity = new(int64(*s.Limit.Capacity))
	}
	for i := range s.Jobs[:min(len(s.Jobs), maxHoldersShown)] {
		k.Holders = append(k.Holders, s.Jobs[i].ID)
	}
	k.Controller, _ = within(ctx, table.Controller) // the facts suffice
	return k
}

// full reports whether a key has no room for a cost, as far as its capacity is concerned.
func full(s *contract.KeySummary, cost int64) bool {
	switch {
	case s.Alone, cost == permits.All && s.Holders > 0:
		return true
	case s.Limit.Capacity == nil:
		return false
	case cost == permits.All:
		return *s.Limit.Capacity == 0
	}
	return s.Held+cost > int64(*s.Limit.Capacity)
}
