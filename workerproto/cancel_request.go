package workerproto

// CancelRequest cancels an open request of this session. The request is still
// answered, with the code job-cancelled unless another answer was sent before. A
// CancelRequest for an id that is not open has no effect.
//
//	{"op":"cancel","id":7}
type CancelRequest struct{ ID int64 }

func (*CancelRequest) fromCaller() {}

func (m *CancelRequest) members(c *codec) {
	c.op("cancel")
	integer(c, "id", &m.ID, 1, maxInt64, required)
}
