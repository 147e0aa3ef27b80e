package backlog

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// LaneState is what is known of one lane, for explanations.
type LaneState struct {
	Keys   []contract.Key // the candidates, oldest first; shared, must not be changed
	Cursor contract.Key   // key of the last row that was read
	More   bool           // the table may contain rows after Cursor
}

// State returns what is known of a lane.
func (b *Backlog) State(r Lane) LaneState {
	l := b.lane(r)
	return LaneState{Keys: l.keys[l.head:], Cursor: l.cursor, More: l.more}
}

// Contains reports whether a row is a candidate.
func (s LaneState) Contains(k contract.Key) bool {
	_, found := slices.BinarySearchFunc(s.Keys, k, contract.Key.Compare)
	return found
}
