package workerproto

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd"
)

// phase is the phase of a worker's session.
//
//	handshaking ──hello──► open ──drain──► draining
//
// It ends with the first fatal error.
type phase uint8

const (
	handshaking phase = iota // only a hello may come
	open                     // welcomed
	draining                 // the worker wants no more jobs
)

// sessionState checks a worker's frames against the rules of the protocol: which
// frame may come when, which slot numbers are registered, which nonce is valid.
// It has no clock, socket or goroutine.
type sessionState struct {
	phase  phase
	nonce  string
	limits Limits
	peer   Peer          // set before accept(hello)
	slots  map[int32]int // registered numbers, each with the number of types of its slot
	types  int           // sum of slots
}

// accept checks a decoded frame and applies it to the state. If it returns an error,
// the error is the answer to the worker. The frame then has no effect on the state.
func (m *sessionState) accept(f WorkerFrame) *Error {
	hello, isHello := f.(*Hello)
	switch {
	case m.phase == handshaking && !isHello:
		return Complain(NotHello, "the first frame must be a hello")
	case isHello && m.phase != handshaking:
		return Complain(SecondHello, "hello comes once on a connection; use slot_add to announce more slots")
	case isHello:
		return m.hello(hello)
	}
	switch f := f.(type) {
	case *SlotAdd:
		return m.slotAdd(f)
	case *SlotRemove:
		return m.slotRemove(f)
	case *Drain, *Goodbye:
		m.phase = draining
	case named:
		if e := f.execution(); e.Session != m.nonce {
			return Complain(WrongSession, "job %d belongs to another session; reports carry the session of the welcome", e.Job).About(e.Job)
		}
	}
	return nil
}

func (m *sessionState) hello(h *Hello) *Error {
	if err := checkVersions("worker", h.MinVersion, h.MaxVersion); err != nil {
		return err
	}
	if h.Worker == "" {
		return Complain(BadValue, "field \"worker\" is missing or zero; callers of the API connect to the socket of --api-socket")
	}
	if !validName(h.Worker) {
		return Complain(BadValue, "field \"worker\" must have 1 to %d bytes and no invisible characters", dispatcherd.MaxWorkerLength)
	}
	all := slices.Clone(h.Slots)
	for _, r := range h.Running {
		all = append(all, r.Slot)
	}
	if err := m.checkSlots(all); err != nil {
		return err
	}
	m.slots = make(map[int32]int, len(h.Slots))
	m.add(h.Slots)
	m.phase = open
	return nil
}

// checkVersions returns an error if there is no common version.
func checkVersions(peer string, lowest, highest int) *Error {
	if lowest > MaxVersion || highest < MinVersion {
		return Complain(BadVersion, "the %s speaks versions %d to %d, this dispatcher %d to %d", peer, lowest, highest, MinVersion, MaxVersion)
	}
	return nil
}

func (m *sessionState) slotAdd(f *SlotAdd) *Error {
	if m.phase == draining {
		return Complain(Draining, "slots cannot be added after drain")
	}
	if err := m.checkSlots(f.Slots); err != nil {
		return err
	}
	m.add(f.Slots)
	return nil
}

// add registers slots that were checked.
func (m *sessionState) add(slots []Slot) {
	for i := range slots {
		m.slots[slots[i].Number] = len(slots[i].Types)
		m.types += len(slots[i].Types)
	}
}

func (m *sessionState) slotRemove(f *SlotRemove) *Error {
	seen := make(map[int32]struct{}, len(f.Slots))
	for _, n := range f.Slots {
		_, twice := seen[n]
		if _, ok := m.slots[n]; !ok || twice {
			return Complain(UnknownSlot, "slot %d is not registered on this session", n)
		}
		seen[n] = struct{}{}
	}
	for _, n := range f.Slots {
		m.types -= m.slots[n]
		delete(m.slots, n)
	}
	return nil
}

// checkSlots checks slots that are to be added.
func (m *sessionState) checkSlots(slots []Slot) *Error {
	if n := len(m.slots) + len(slots); n > m.limits.MaxSlots {
		return Complain(BadSlot, "%d slots are more than the limit of %d for a session", n, m.limits.MaxSlots)
	}
	types := m.types
	for i := range slots {
		types += len(slots[i].Types)
	}
	if types > m.limits.MaxSlotTypes {
		return Complain(BadSlot,
			"the slots of the session would have %d types in all, the limit is %d; announce fewer slots, or fewer types per slot",
			types, m.limits.MaxSlotTypes)
	}
	fresh := make(map[int32]struct{}, len(slots))
	for i := range slots {
		sl := &slots[i]
		_, taken := m.slots[sl.Number]
		if _, twice := fresh[sl.Number]; taken || twice {
			return Complain(BadSlot, "slot number %d is taken; numbers are unique in a session", sl.Number)
		}
		fresh[sl.Number] = struct{}{}
		if err := m.checkTypes(sl); err != nil {
			return err
		}
	}
	return nil
}

func (m *sessionState) checkTypes(sl *Slot) *Error {
	if len(sl.Types) == 0 {
		return Complain(BadSlot, "slot %d supports no types; give at least one", sl.Number)
	}
	if len(sl.Types) > m.limits.MaxTypesPerSlot {
		return Complain(BadSlot, "slot %d supports %d types, the limit is %d", sl.Number, len(sl.Types), m.limits.MaxTypesPerSlot)
	}
	for i, t := range sl.Types {
		if err := dispatcherd.CheckType(t); err != nil {
			return Complain(BadSlot, "slot %d: %v (%q)", sl.Number, err, truncate(t, maxSymbol))
		}
		if i > 0 && t == sl.Types[i-1] {
			return Complain(BadSlot, "slot %d names type %q twice", sl.Number, t)
		}
		if m.limits.Permit != nil {
			if objection := m.limits.Permit(m.peer, t); objection != "" {
				return Complain(BadSlot, "slot %d: %s", sl.Number, objection)
			}
		}
	}
	return nil
}

// validName reports whether the name of a worker or caller is valid.
func validName(name string) bool {
	return name != "" && len(name) <= dispatcherd.MaxWorkerLength && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, dispatcherd.Invisible)
}
