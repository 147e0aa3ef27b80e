package freeze

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"unsafe"
)

// ErrDamaged says that bytes are not what a Writer of the same Schema wrote.
var ErrDamaged = errors.New("the bytes are not what was written")

// reader reads one value.
type reader struct {
	codec   *Codec
	b       []byte
	objects []reflect.Value // pointers, by number - 1
	plans   []*plan         // of what they lead to
	depth   int             // of values in interfaces
}

// Read makes *v what Append wrote at the beginning of b, and returns the rest.
// The error is ErrDamaged with the reason.
func Read[T any](c *Codec, b []byte, f Form[T], v *T) (rest []byte, err error) {
	r := &reader{codec: c, b: b}
	if err := r.value(f.plan, unsafe.Pointer(v)); err != nil { //nolint:gosec // what a plan says about T holds for *v
		return nil, err
	}
	for i := 0; i < len(r.objects); i++ { //nolint:intrange // it grows
		p := r.objects[i]
		if err := r.value(r.plans[i], p.UnsafePointer()); err != nil {
			return nil, err
		}
	}
	return r.b, nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// value follows a plan. What it stores behind pointers it stores as values of
// their types, so that the collector sees them.
func (r *reader) value(p *plan, at unsafe.Pointer) error {
	for i := range p.ops {
		o := &p.ops[i]
		field := unsafe.Add(at, o.offset)
		var err error
		switch o.do {
		case doRaw:
			err = r.raw(field, o.size)
		case doString:
			err = r.text((*string)(field))
		case doSlice:
			err = r.slice(o, reflect.NewAt(o.typ, field).Elem())
		case doArray:
			for n := uintptr(0); n < o.size && err == nil; n++ {
				err = r.value(o.elem, unsafe.Add(field, n*o.elem.size))
			}
		case doPointer:
			err = r.pointer(reflect.NewAt(o.typ, field).Elem(), o.elem)
		case doMap:
			err = r.table(o, reflect.NewAt(o.typ, field).Elem())
		case doInterface:
			err = r.boxed(reflect.NewAt(o.typ, field).Elem())
		}
		if err != nil {
			return err
		}
	}
	return checkFlags(p, at)
}

// checkFlags keeps bytes other than 0 and 1 out of truth values.
func checkFlags(p *plan, at unsafe.Pointer) error {
	for _, f := range p.flag {
		if v := *(*byte)(unsafe.Add(at, f)); v > 1 {
			*(*byte)(unsafe.Add(at, f)) = 0
			return damaged("a truth value of %d in a %v", v, p.typ)
		}
	}
	return nil
}

func (r *reader) raw(to unsafe.Pointer, size uintptr) error {
	if uintptr(len(r.b)) < size {
		return damaged("it ends %d bytes too early", size-uintptr(len(r.b)))
	}
	copy(unsafe.Slice((*byte)(to), size), r.b) //nolint:gosec // a run of memory that the plan of its type names
	r.b = r.b[size:]
	return nil
}

// count reads a length of things that take at least so many bytes each.
func (r *reader) count(least int) (int, error) {
	n, used := binary.Uvarint(r.b)
	if used <= 0 {
		return 0, damaged("a length is missing")
	}
	r.b = r.b[used:]
	if n > uint64(len(r.b)/max(1, least)) {
		return 0, damaged("a length of %d, with %d bytes left", n, len(r.b))
	}
	return int(n), nil
}

func (r *reader) text(to *string) error {
	n, err := r.count(1)
	if err != nil {
		return err
	}
	*to = string(r.b[:n])
	r.b = r.b[n:]
	return nil
}

// more reads a length plus one, 0 for nil.
func (r *reader) more(least int) (n int, isNil bool, err error) {
	v, used := binary.Uvarint(r.b)
	if used <= 0 {
		return 0, false, damaged("a length is missing")
	}
	r.b = r.b[used:]
	if v == 0 {
		return 0, true, nil
	}
	if v-1 > uint64(len(r.b)/max(1, least)) {
		return 0, false, damaged("%d elements, with %d bytes left", v-1, len(r.b))
	}
	return int(v - 1), false, nil
}

func (r *reader) slice(o *op, to reflect.Value) error {
	n, isNil, err := r.more(o.elem.min)
	if err != nil || isNil {
		return err
	}
	to.Set(reflect.MakeSlice(o.typ, n, n))
	first := to.UnsafePointer()
	if o.elem.raw {
		if err := r.raw(first, uintptr(n)*o.elem.size); err != nil {
			return err
		}
	}
	for i := range uintptr(n) {
		at := unsafe.Add(first, i*o.elem.size)
		if !o.elem.raw {
			err = r.value(o.elem, at)
		} else {
			err = checkFlags(o.elem, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) pointer(to reflect.Value, p *plan) error {
	n, used := binary.Uvarint(r.b)
	if used <= 0 {
		return damaged("a pointer is missing")
	}
	r.b = r.b[used:]
	switch {
	case n == 0:
		return nil
	case n > uint64(len(r.objects))+1:
		return damaged("a pointer to object %d, after %d", n, len(r.objects))
	case n == uint64(len(r.objects))+1:
		r.objects = append(r.objects, reflect.New(to.Type().Elem()))
		r.plans = append(r.plans, p)
	}
	if r.objects[n-1].Type() != to.Type() {
		return damaged("object %d is a %v and no %v", n, r.objects[n-1].Type(), to.Type())
	}
	to.Set(r.objects[n-1])
	return nil
}

func (r *reader) table(o *op, to reflect.Value) error {
	n, isNil, err := r.more(o.key.min + o.elem.min)
	if err != nil || isNil {
		return err
	}
	to.Set(reflect.MakeMap(o.typ))
	for range n {
		key, value := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
		if err := r.value(o.key, key.UnsafePointer()); err != nil {
			return err
		}
		if err := r.value(o.elem, value.UnsafePointer()); err != nil {
			return err
		}
		to.SetMapIndex(key.Elem(), value.Elem())
	}
	return nil
}

// maxDepth bounds values in interfaces inside values in interfaces.
const maxDepth = 8

func (r *reader) boxed(to reflect.Value) error {
	n, used := binary.Uvarint(r.b)
	if used <= 0 {
		return damaged("the type of a value is missing")
	}
	r.b = r.b[used:]
	if n == 0 {
		return nil
	}
	if n > uint64(len(r.codec.concrete)) || !r.codec.concrete[n-1].AssignableTo(to.Type()) {
		return damaged("there is no type %d for a %v", n-1, to.Type())
	}
	if r.depth++; r.depth > maxDepth {
		return damaged("values inside values, more than %d deep", maxDepth)
	}
	defer func() { r.depth-- }()
	box := reflect.New(r.codec.concrete[n-1])
	if err := r.value(r.codec.of(box.Type().Elem()), box.UnsafePointer()); err != nil {
		return err
	}
	to.Set(box.Elem())
	return nil
}
