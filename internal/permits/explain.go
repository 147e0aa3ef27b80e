package permits

import "slices"

// Reason states why a job waits.
type Reason uint8

// Reasons for which a job waits.
const (
	Ready       Reason = iota // the next decision admits it
	Admitted                  // it has its permits and waits for a slot
	KeyBusy                   // a key has no room
	KeyOrder                  // another job has precedence at a key
	KeyRate                   // the window of a key has no room
	KeyPaused                 // the capacity of a key is 0
	KeyCost                   // the job costs more than the limit of a key
	NotDue                    // its run_at has not come
	TypeUnknown               // no slot supports its type
	TypeFull                  // enough jobs of its type wait for a slot
	NotRead                   // the book does not know the job
)

// Waiting explains why a job waits.
type Waiting struct {
	Reason         Reason
	Key            string
	Held, Capacity int64
	Holders        []int64 // ids of jobs that hold permits of the key, at most 10, ascending
	Ahead          int     // known jobs that wait at the key before the job, counted to at most 1,000
	First          int64   // id of the job that has precedence (KeyOrder)
	At             int64   // microseconds: when the window has room (KeyRate), or the job is due (NotDue); 0 = unknown
}

// Explain states why a job of a class waits.
func (b *Book) Explain(name Class, j Job) Waiting {
	switch c := b.classes[name]; {
	case b.permits[j.ID] != nil:
		return Waiting{Reason: Admitted}
	case c == nil:
		return Waiting{Reason: NotRead}
	case j.RunAt > b.now:
		return Waiting{Reason: NotDue, At: j.RunAt}
	case b.types != nil && b.types[name.Type].Most == 0:
		return Waiting{Reason: TypeUnknown}
	}
	return Waiting{Reason: Ready}
}

// KeyState is the state of a key.
type KeyState struct {
	Name      string
	Limit     Limit
	Held      int64 // cost of all permits, without those of All
	Holders   int   // permits
	Alone     bool  // a job that needs all of the key runs
	Waiting   int   // classes that wait at the key
	NextClass Class
	Next      Job   // the first job of the first class; ID 0 = none
	Started   int64 // cost that started within the window
}

// Key returns the state of a key; ok is false if no known job needs it.
func (b *Book) Key(name string) (s KeyState, ok bool) {
	k := b.keys[name]
	if k == nil {
		return s, false
	}
	s = KeyState{Name: name, Limit: k.limit, Held: k.held, Holders: k.holders, Alone: k.alone > 0, Waiting: len(k.queue.items), Started: k.window.sum}
	if c, waits := k.queue.min(); waits {
		s.NextClass, s.Next = c.Class, Job{c.head.rank + int64(c.Priority)*b.config.PerPriority, c.head.id}
	}
	return s, true
}

// Keys returns the states of keys after a name, in the order of their names, up to most of them.
func (b *Book) Keys(after string, most int) []KeyState {
	var names []string
	for name := range b.keys { // order-free: sorted below
		if name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	states := make([]KeyState, 0, min(most, len(names)))
	for _, name := range names[:min(most, len(names))] {
		s, _ := b.Key(name)
		states = append(states, s)
	}
	return states
}
