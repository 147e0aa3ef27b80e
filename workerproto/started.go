package workerproto

import "github.com/dispatcherd/dispatcherd"

// Started says that a worker runs the request. After a crash the request is started
// again, and another Started follows.
//
//	{"op":"started","id":7,"slot":3,"worker":"w1"}
type Started struct {
	sentByDispatcher

	ID     int64
	Slot   dispatcherd.SlotID
	Worker string
}

func (m *Started) members(c *codec) {
	c.op("started")
	integer(c, "id", &m.ID, required)
	integer(c, "slot", &m.Slot, always)
	c.text("worker", &m.Worker, MaxMessageLength, optional)
}
