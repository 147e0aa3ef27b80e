package workerproto

// CancelRequest cancels an open request of this session. The request still gets exactly
// one answer. Its code is job-cancelled, unless the dispatcher has sent another answer
// before. A CancelRequest for an id that is not open has no effect.
//
//	{"op":"cancel","id":7}
type CancelRequest struct {
	sentByCaller

	ID int64
}

func (m *CancelRequest) members(c *codec) {
	c.op("cancel")
	integer(c, "id", &m.ID, required)
}
