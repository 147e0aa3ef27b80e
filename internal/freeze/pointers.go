package freeze

import "math/bits"

// pointers numbers addresses from 1 in the order in which they are met. It is
// a hash table of its own because a snapshot looks up every job twice.
type pointers struct {
	slots []pointerSlot // a power of two of them, at most half used
	n     int
	shift uint8
}

type pointerSlot struct {
	at     uintptr // 0 = unused
	number int32
}

func (t *pointers) reset() {
	if t.n > 0 {
		clear(t.slots)
		t.n = 0
	}
}

// number returns the number of an address, and whether it was met before.
func (t *pointers) number(at uintptr) (int32, bool) {
	if 2*(t.n+1) > len(t.slots) {
		t.grow()
	}
	s := t.find(at)
	if s.at != 0 {
		return s.number, true
	}
	t.n++
	*s = pointerSlot{at, int32(t.n)}
	return s.number, false
}

func (t *pointers) find(at uintptr) *pointerSlot {
	mask := len(t.slots) - 1
	i := int(uint64(at) * 0x9e3779b97f4a7c15 >> t.shift)
	for t.slots[i].at != 0 && t.slots[i].at != at {
		i = (i + 1) & mask
	}
	return &t.slots[i]
}

func (t *pointers) grow() {
	old := t.slots
	t.slots = make([]pointerSlot, max(16, 2*len(old)))
	t.shift = uint8(64 - bits.TrailingZeros(uint(len(t.slots))))
	for _, s := range old {
		if s.at != 0 {
			*t.find(s.at) = s
		}
	}
}
