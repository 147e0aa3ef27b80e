package permits

// Start is cost that starts within the window of a key.
type Start struct {
	Key        string
	Dispatcher int32 // 0 = any
	Cost       int64
	Per        int64 // microseconds, of the limit
	At         int64 // microseconds: when it started, or the last part of it
	Ago        int64 // microseconds since At, when it was read
	Unrecorded bool  // no admission has recorded the cost: the key had no such rate
}

// Rates returns what a job of a class uses of windows when a dispatcher, 0 = any, claims it. It is empty if no key of the class has a rate.
func (b *Book) Rates(name Class, dispatcher int32) (starts []Start) {
	for _, n := range NeedsOf(name.Keys) {
		if l := b.limits.of(n.Key); l.Rate > 0 {
			s := Start{Key: n.Key, Cost: atLeastOne(n.Cost), Per: l.Per}
			if l.Scope == Dispatcher {
				s.Dispatcher = dispatcher
			}
			starts = append(starts, s)
		}
	}
	return starts
}
