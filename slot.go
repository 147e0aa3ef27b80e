package dispatcherd

// SlotID names a slot inside one dispatcher. Ids are assigned in the order of
// registration. They are not reused while the dispatcher runs, so the id of a
// removed slot never names another slot. Among equally specialised free slots
// the smallest id is chosen.
type SlotID int64

// SessionID names one connection of a worker inside one dispatcher. It is not
// reused while the dispatcher runs. Frames name a session by its random nonce
// instead.
type SessionID int64

// Slot describes one slot at registration.
type Slot struct {
	ID     SlotID
	Number int32    // the worker's own number for it, unique in its session
	Types  []string // the types it supports: at least one, sorted, no duplicates
}
