package contract

import "time"

// PendingLimit bounds the exact count of the pending rows of a type.
const PendingLimit = 10_000

// PendingType describes the pending rows of one type.
type PendingType struct {
	Type   string
	Rows   int           // PendingLimit+1 means more than PendingLimit
	Oldest time.Duration // time since the oldest row became due; 0 = no row is due
}
