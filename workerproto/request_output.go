package workerproto

// RequestProgress tells the caller the progress that the worker has reported.
//
//	{"op":"progress","id":7,"data":{"done":1,"total":3}}
type RequestProgress struct {
	sentByDispatcher

	ID   int64
	Data []byte // JSON
}

func (m *RequestProgress) members(c *codec) { m.output(c, "progress") }

func (m *RequestProgress) output(c *codec, op string) {
	c.op(op)
	integer(c, "id", &m.ID, required)
	c.raw("data", &m.Data, required)
}

// RequestPartial forwards a piece of the worker's output to the caller.
//
//	{"op":"partial","id":7,"data":{"line":"hello"}}
type RequestPartial RequestProgress

func (m *RequestPartial) members(c *codec) { (*RequestProgress)(m).output(c, "partial") }
