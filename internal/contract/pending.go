package contract

import "time"

// PendingLimit bounds the exact count of the pending rows of a type.
const PendingLimit = 10_000

// PendingType describes pending rows of one type.
type PendingType struct {
	Type   string
	Rows   int           // PendingLimit+1 means more than PendingLimit
	Oldest time.Duration // time since the oldest row became due that waits for no permits; 0 = no row is due
	Keyed  time.Duration // the same of the rows that wait for permits
}

// PendingCursor is where a count of pending rows continues. The zero value is the beginning.
type PendingCursor struct {
	Type     string
	Keyed    bool // the lanes are counted; rows that wait for permits follow
	Keys     string
	Priority int16
	Classes  int // of rows that wait for permits, counted so far
}
