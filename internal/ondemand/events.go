package ondemand

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// Event is one event of a request or of a followed row.
type Event struct {
	Name    string              // queued, started, or of a report: progress, partial (output) or log
	Data    []byte              // JSON
	Attempt dispatcherd.Attempt // of a report

	Rank   Rank               // of queued
	Slot   dispatcherd.SlotID // of started
	Worker string             // of started
}

// Events is a bounded list of events. If there is no room, the oldest ones are dropped. The zero value is not usable. It is not safe for
// concurrent use.
type Events struct {
	s       *Service
	user    string // whose share of Limits.KeepBytes it takes
	list    []Event
	dropped int   // number of events that were dropped before list[0]
	bytes   int64 // counted towards Limits.KeepBytes
}

// NewEvents returns an empty list of a user, which counts towards the bounds of the service.
func (s *Service) NewEvents(user string) Events { return Events{s: s, user: user} }

// Add adds an event.
func (l *Events) Add(e Event) {
	for len(l.list) > 0 && (len(l.list) >= l.s.limits.EventsPerRequest || l.s.full(l.user)) {
		l.remove(1)
		l.dropped++
	}
	if l.s.full(l.user) {
		l.dropped++ // there is no room even for this event alone
		return
	}
	l.list = append(l.list, e)
	l.grow(int64(len(e.Data)))
}

func (l *Events) grow(by int64) {
	l.bytes += by
	l.s.held.Lock()
	defer l.s.held.Unlock()
	l.s.held.Add(l.user, int(by))
}

// remove removes the first n events.
func (l *Events) remove(n int) {
	for i := range l.list[:n] {
		l.grow(-int64(len(l.list[i].Data)))
		l.list[i] = Event{}
	}
	l.list = l.list[n:]
}

// portion returns the first of some events, up to ViewBytes.
func portion(list []Event) []Event {
	n, size := 0, 0
	for n < len(list) && size < ViewBytes {
		size += len(list[n].Data)
		n++
	}
	return list[:n]
}

// Take removes a portion of the first events and returns those of attempts up to a known one. missed is the number of events that were
// dropped before the first one. more says that Take returns events, and that further ones wait.
func (l *Events) Take(known dispatcherd.Attempt) (missed int, events []Event, more bool) {
	first := slices.IndexFunc(l.list, func(e Event) bool { return e.Attempt > known })
	if first < 0 {
		first = len(l.list)
	}
	events = slices.Clone(portion(l.list[:first]))
	l.remove(len(events))
	missed, l.dropped = l.dropped, 0
	return missed, events, len(events) > 0 && len(l.list) > 0
}

// Clear drops all events.
func (l *Events) Clear() { l.remove(len(l.list)) }
