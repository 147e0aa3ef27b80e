package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/freeze"
)

// A record is one step: its length in bytes (4, itself included), the kind of
// the event (2), the number of effects (2, at most 65,535), the instant (8), the
// CRC-32C of the effects (4), and the event.
const (
	recordHead = 20
	atKind     = 4
	atCount    = 6
	atInstant  = 8
	atHash     = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealEvent writes the head of a record whose event is complete.
func sealEvent(rec []byte, kind int, now actor.Instant) {
	binary.LittleEndian.PutUint32(rec, uint32(len(rec)))
	binary.LittleEndian.PutUint16(rec[atKind:], uint16(kind))
	binary.LittleEndian.PutUint64(rec[atInstant:], uint64(now))
}

// sealEffects adds what came of it.
func sealEffects(rec []byte, count int, hash uint32) {
	binary.LittleEndian.PutUint16(rec[atCount:], uint16(min(count, 0xffff)))
	binary.LittleEndian.PutUint32(rec[atHash:], hash)
}

// record is one that was read.
type record struct {
	kind  int
	count int
	now   actor.Instant
	hash  uint32
	body  []byte
}

// cutRecord takes the first record off b.
func cutRecord(b []byte) (rec record, rest []byte, err error) {
	if len(b) < recordHead {
		return rec, nil, fmt.Errorf("%w: a record of %d bytes", ErrDamaged, len(b))
	}
	size := int64(binary.LittleEndian.Uint32(b))
	if size < recordHead || size > int64(len(b)) {
		return rec, nil, fmt.Errorf("%w: a record says that it has %d bytes, with %d left", ErrDamaged, size, len(b))
	}
	rec = record{
		kind: int(binary.LittleEndian.Uint16(b[atKind:])), count: int(binary.LittleEndian.Uint16(b[atCount:])),
		now: actor.Instant(binary.LittleEndian.Uint64(b[atInstant:])), hash: binary.LittleEndian.Uint32(b[atHash:]),
		body: b[recordHead:size],
	}
	if rec.kind >= len(files.kinds) {
		return rec, nil, fmt.Errorf("%w: an event of kind %d, of which there are %d", ErrDamaged, rec.kind, len(files.kinds))
	}
	return rec, b[size:], nil
}

// event makes the event of a record. Every call makes another one.
func (rec *record) event() (actor.Event, error) {
	ev, err := files.kinds[rec.kind].read(rec.body)
	if err != nil {
		return nil, fmt.Errorf("%w: an event %q: %w", ErrDamaged, files.kinds[rec.kind].name, err)
	}
	return ev, nil
}

// hasher makes the number by which the effects of a step are compared.
type hasher struct {
	w   *freeze.Writer
	fx  []actor.Effect
	buf []byte
}

// sum is a checksum of everything in the effects that a file may hold, the
// requests they point to included.
func (h *hasher) sum(fx []actor.Effect) uint32 {
	if len(fx) == 0 {
		return 0
	}
	h.fx = fx
	h.buf = freeze.Append(h.w, h.buf[:0], files.effects, &h.fx)
	h.fx = nil
	sum := crc32.Checksum(h.buf, castagnoli)
	h.buf = modest(h.buf)
	return sum
}

// modest gives a scratch buffer back that one large step made large.
func modest(b []byte) []byte {
	if cap(b) > 4<<20 {
		return nil
	}
	return b
}
