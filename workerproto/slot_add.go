package workerproto

// SlotAdd registers slots during a session. If one slot is rejected, none is
// registered.
//
//	{"op":"slot_add","slots":[{"slot":1,"types":["excel","pdf"]}]}
type SlotAdd struct {
	sentByWorker

	Slots []Slot
}

func (m *SlotAdd) members(c *codec) {
	c.op("slot_add")
	list(c, "slots", &m.Slots, noSlot, listed[Slot], required)
}
