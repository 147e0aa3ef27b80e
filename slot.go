package dispatcherd

// SlotID names a slot inside one dispatcher. Ids are handed out in the order
// of registration and never reused while the dispatcher runs, so that a slot
// that is gone stays a name for nothing. Among equally specialised free slots
// the smallest id is chosen.
type SlotID int64

// SessionID names one connection of a worker inside one dispatcher. Never
// reused while the dispatcher runs; on the wire a session is known by its
// random nonce instead.
type SessionID int64

// Slot describes one slot at registration.
type Slot struct {
	ID     SlotID
	Number int32    // the worker's own number for it, unique in its session
	Types  []string // the types it supports: at least one, sorted, no duplicates
}
