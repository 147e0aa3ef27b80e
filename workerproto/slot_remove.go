package workerproto

// SlotRemove removes slots. If one slot is unknown, none is removed. A removed slot
// gets no more jobs. A busy slot first ends its job. A job that the dispatcher sent
// before it read this frame may still arrive. The worker runs this job or gives it back
// with a release.
//
//	{"op":"slot_remove","slots":[1]}
type SlotRemove struct {
	sentByWorker

	Slots []int32
}

func (m *SlotRemove) members(c *codec) {
	c.op("slot_remove")
	list(c, "slots", &m.Slots, 0, listedInteger, required)
}
