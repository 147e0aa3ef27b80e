package workerproto

// SlotRemove removes slots: they get no more jobs, and a busy one ends its job
// first. It removes all of them, or none if one is unknown. A job that was sent
// before the frame was read may still arrive; the worker runs it or gives it back
// with a release.
//
//	{"op":"slot_remove","slots":[1]}
type SlotRemove struct {
	Slots []int32
}

func (*SlotRemove) fromWorker() {}

func (m *SlotRemove) members(c *codec) {
	c.op("slot_remove")
	list(c, "slots", &m.Slots, 0, listedInteger, required)
}
