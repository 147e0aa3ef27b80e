package freeze

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"
)

// Writer writes values. It keeps its memory between two of them, and must be
// used by one goroutine at a time.
type Writer struct {
	codec *Codec
	known pointers
	queue []object // met, and not yet written
}

// object is what a pointer leads to.
type object struct {
	at   unsafe.Pointer
	plan *plan
}

// NewWriter returns a Writer.
func (c *Codec) NewWriter() *Writer { return &Writer{codec: c} }

// Form is how values of type T are written; see FormOf.
type Form[T any] struct{ plan *plan }

// FormOf looks at a type once, so that writing its values is quick.
func FormOf[T any](c *Codec) Form[T] { return Form[T]{c.of(reflect.TypeFor[T]())} }

// Append writes *v behind b, with everything it leads to, and returns the
// longer slice. Two values share no pointers. The value must not change
// meanwhile.
func Append[T any](w *Writer, b []byte, f Form[T], v *T) []byte {
	w.known.reset()
	w.queue = w.queue[:0]
	b = w.write(b, f.plan, unsafe.Pointer(v)) //nolint:gosec // what a plan says about T holds for *v
	for i := 0; i < len(w.queue); i++ {       //nolint:intrange // it grows
		o := w.queue[i]
		b = w.write(b, o.plan, o.at)
	}
	clear(w.queue)
	return b
}

// write follows a plan. The pointers it makes stay inside the value at p: that
// is what offsets and lengths of its type guarantee.
func (w *Writer) write(b []byte, p *plan, at unsafe.Pointer) []byte {
	for i := range p.ops {
		o := &p.ops[i]
		field := unsafe.Add(at, o.offset)
		switch o.do {
		case doRaw:
			b = append(b, unsafe.Slice((*byte)(field), o.size)...) //nolint:gosec // as the plan says
		case doString:
			s := *(*string)(field)
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		case doSlice:
			b = w.slice(b, o, field)
		case doArray:
			for n := range o.size {
				b = w.write(b, o.elem, unsafe.Add(field, n*o.elem.size))
			}
		case doPointer:
			b = w.pointer(b, *(*unsafe.Pointer)(field), o.elem)
		case doMap:
			b = w.table(b, o, field)
		case doInterface:
			b = w.boxed(b, o, field)
		}
	}
	return b
}

// slice writes 0 for nil, else the length plus one and the elements.
func (w *Writer) slice(b []byte, o *op, field unsafe.Pointer) []byte {
	s := *(*[]byte)(field) // every slice looks like this one, but for the size of what it counts
	if s == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(s))+1)
	first := unsafe.Pointer(unsafe.SliceData(s)) //nolint:gosec // of as many elements as the slice has
	if o.elem.raw {
		return append(b, unsafe.Slice((*byte)(first), uintptr(len(s))*o.elem.size)...) //nolint:gosec // see above
	}
	for n := range uintptr(len(s)) {
		b = w.write(b, o.elem, unsafe.Add(first, n*o.elem.size))
	}
	return b
}

// pointer writes 0 for nil, else the number of what it leads to. That is
// written behind everything else, so that no chain of pointers is too long.
func (w *Writer) pointer(b []byte, to unsafe.Pointer, p *plan) []byte {
	if to == nil {
		return append(b, 0)
	}
	number, met := w.known.number(uintptr(to))
	if !met {
		w.queue = append(w.queue, object{to, p})
	}
	return binary.AppendUvarint(b, uint64(number))
}

// table writes 0 for nil, else the length plus one, keys and values. The order
// is that of the map: no two writings need be alike.
func (w *Writer) table(b []byte, o *op, field unsafe.Pointer) []byte {
	m := reflect.NewAt(o.typ, field).Elem()
	if m.IsNil() {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(m.Len())+1)
	key, value := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	for all := m.MapRange(); all.Next(); {
		key.Elem().SetIterKey(all)
		value.Elem().SetIterValue(all)
		b = w.write(b, o.key, key.UnsafePointer())
		b = w.write(b, o.elem, value.UnsafePointer())
	}
	return b
}

// boxed writes 0 for nil, else the number of the concrete type plus one, and
// the value.
func (w *Writer) boxed(b []byte, o *op, field unsafe.Pointer) []byte {
	v := reflect.NewAt(o.typ, field).Elem().Elem()
	if !v.IsValid() {
		return append(b, 0)
	}
	number, known := w.codec.numbers[v.Type()]
	if !known {
		panic(fmt.Sprintf("freeze: a %v stands in a %v: Admit it", v.Type(), o.typ))
	}
	b = binary.AppendUvarint(b, uint64(number)+1)
	box := reflect.New(v.Type())
	box.Elem().Set(v)
	return w.write(b, w.codec.of(v.Type()), box.UnsafePointer())
}
