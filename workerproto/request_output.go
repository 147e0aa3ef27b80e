package workerproto

// requestOutput is what a worker sends while it runs a request.
type requestOutput struct {
	ID   int64
	Data []byte // JSON
}

func (m *requestOutput) fields(dst []byte) []byte {
	dst = appendInt(append(dst, `,"id":`...), m.ID)
	return append(appendRaw(dst, `,"data":`, m.Data), '}')
}

func (m *requestOutput) field(key []byte, s *scanner) {
	switch string(key) {
	case "id":
		m.ID = s.integer(1, maxInt64)
	case "data":
		m.Data = s.raw()
	default:
		s.unknown(key)
	}
}

func (m *requestOutput) check(s *scanner) {
	s.require(m.ID != 0, "id")
	s.require(m.Data != nil, "data")
}

// RequestProgress is the worker's progress.
//
//	{"op":"progress","id":7,"data":{"done":1,"total":3}}
type RequestProgress struct{ requestOutput }

// NewRequestProgress returns the frame. data is JSON.
func NewRequestProgress(id int64, data []byte) *RequestProgress {
	return &RequestProgress{requestOutput{ID: id, Data: data}}
}

func (*RequestProgress) fromDispatcher() {}

func (m *RequestProgress) appendTo(dst []byte) []byte {
	return m.fields(append(dst, `{"op":"progress"`...))
}

// RequestPartial is a piece of the worker's output.
//
//	{"op":"partial","id":7,"data":{"line":"hello"}}
type RequestPartial struct{ requestOutput }

// NewRequestPartial returns the frame. data is JSON.
func NewRequestPartial(id int64, data []byte) *RequestPartial {
	return &RequestPartial{requestOutput{ID: id, Data: data}}
}

func (*RequestPartial) fromDispatcher() {}

func (m *RequestPartial) appendTo(dst []byte) []byte {
	return m.fields(append(dst, `{"op":"partial"`...))
}
