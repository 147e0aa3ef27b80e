package workerproto

// Gap says that the dispatcher dropped events of the request, because its buffer for
// them was full.
//
//	{"op":"gap","id":7,"missed":12}
type Gap struct {
	sentByDispatcher

	ID     int64
	Missed int
}

func (m *Gap) members(c *codec) {
	c.op("gap")
	integer(c, "id", &m.ID, required)
	integer(c, "missed", &m.Missed, always)
}
