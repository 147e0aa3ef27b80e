package workerproto

import "sort"

// Slot is one slot of a worker. The worker chooses the number, which is unique in the
// session. A slot supports at least one type. Types has no duplicates and is sorted
// after decoding. On the wire a slot is {"slot":0,"types":["excel","pdf"]}.
type Slot struct {
	Number int32
	Types  []string
}

// noSlot is a slot whose number is missing.
var noSlot = Slot{Number: -1}

func (sl *Slot) members(c *codec) {
	integer(c, "slot", &sl.Number, always)
	c.require(sl.Number >= 0, "slot")
	if list(c, "types", &sl.Types, "", listedSymbol, always) {
		sort.Strings(sl.Types)
	}
}
