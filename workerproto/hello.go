package workerproto

// Hello is the first frame of a connection and is sent once. It contains the
// versions of the protocol that the worker speaks, its name, its free slots, and
// the executions of earlier sessions that it offers to resume. A busy slot is in
// Running and not in Slots.
//
//	{"op":"hello","versions":[1,1],"worker":"w1","slots":[{"slot":0,"types":["pdf"]}],"running":[]}
type Hello struct {
	MinVersion, MaxVersion int
	Worker                 string // 1..dispatcherd.MaxWorkerLength bytes, for people: need not be unique
	Slots                  []Slot
	Running                []Running
	// Resumes: when a session ends, the worker offers its executions in the next
	// hello. The jobs of other workers are retried at once.
	Resumes bool
}

// Running is a resume offer: an execution that began in an earlier session, with
// the slot it occupies. If the dispatcher resumes it ([Session.Resume]) the slot is
// registered, busy; otherwise the slot does not exist until the worker adds it with
// a slot_add.
type Running struct {
	Execution // Session is the nonce of the session in which it began
	Slot
	Generation int // how often it has been offered, this time included; 0 = the worker does not count
}

func (*Hello) fromWorker() {}

func (m *Hello) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"op":"hello","versions":[`...), int64(m.MinVersion))
	dst = appendInt(append(dst, ','), int64(m.MaxVersion))
	dst = appendString(append(dst, `],"worker":`...), m.Worker)
	dst = appendSlots(append(dst, `,"slots":`...), m.Slots)
	if len(m.Running) > 0 {
		dst = append(dst, `,"running":[`...)
		for i := range m.Running {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.Running[i].appendTo(dst)
		}
		dst = append(dst, ']')
	}
	if m.Resumes {
		dst = append(dst, `,"resumes":true`...)
	}
	return append(dst, '}')
}

func (m *Hello) field(key []byte, s *scanner) {
	switch string(key) {
	case "versions":
		m.versions(s)
	case "worker":
		m.Worker = s.text(unbounded)
	case "slots":
		m.Slots = slotList(s)
	case "running":
		m.Running = runningList(s)
	case "resumes":
		m.Resumes = s.boolean(false)
	default:
		s.unknown(key)
	}
}

func (m *Hello) versions(s *scanner) {
	n := 0
	for more := s.array(); more; more = s.More(']') {
		v := int(s.integer(0, maxInt32))
		switch n {
		case 0:
			m.MinVersion, m.MaxVersion = v, 0
		case 1:
			m.MaxVersion = v
		}
		n++
	}
	if n != 2 || m.MinVersion > m.MaxVersion {
		s.bad("field \"versions\" must be [lowest, highest]")
	}
}

func (m *Hello) check(s *scanner) {
	s.require(m.MinVersion > 0, "versions")
	s.require(m.Worker != "", "worker")
}

func (r *Running) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"slot":`...), int64(r.Number))
	dst = appendStrings(append(dst, `,"types":`...), r.Types)
	dst = r.appendFields(dst)
	if r.Generation > 0 {
		dst = appendInt(append(dst, `,"times":`...), int64(r.Generation))
	}
	return append(dst, '}')
}

func (r *Running) field(key []byte, s *scanner) {
	switch {
	case string(key) == "times":
		r.Generation = int(s.integer(0, maxInt32))
	case !r.Execution.member(key, s) && !r.Slot.member(key, s):
		s.Skip()
	}
}

func (r *Running) check(s *scanner) {
	r.Execution.check(s)
	r.Slot.check(s)
}

func runningList(s *scanner) []Running {
	var list []Running
	for more := s.array(); more; more = s.More(']') {
		var r Running
		s.seenSlot = false
		s.object(&r)
		r.check(s)
		list = append(list, r)
	}
	return list
}
