package freeze

import (
	"fmt"
	"hash/fnv"
	"path"
	"reflect"
	"slices"
	"sync"
	"unsafe"
)

// Options choose what is written of the types that a Codec meets. Fields are
// named package.Type.field, such as "actor.session.worker".
type Options struct {
	Strings []string // fields whose strings are written; all others are left out
	Silent  []string // fields whose strings are left out on purpose
	Drop    []string // fields that are left out altogether
}

// Codec knows how to write and read types. Its methods may be called from any
// goroutine.
type Codec struct {
	strings, silent, drop map[string]bool
	concrete              []reflect.Type
	numbers               map[reflect.Type]int

	mu       sync.Mutex
	plans    map[reflect.Type]*plan // of structs
	unjudged []string
}

// New returns a Codec.
func New(o Options) *Codec {
	c := &Codec{
		strings: set(o.Strings), silent: set(o.Silent), drop: set(o.Drop),
		numbers: map[reflect.Type]int{}, plans: map[reflect.Type]*plan{},
	}
	return c
}

// Admit allows the types of values to stand in interfaces. Their number in the
// bytes is the order of admission. It must come before any reading or writing.
func (c *Codec) Admit(values ...any) {
	for _, v := range values {
		t := reflect.TypeOf(v)
		c.numbers[t] = len(c.concrete)
		c.concrete = append(c.concrete, t)
	}
}

func set(names []string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// plan is how one type is written.
type plan struct {
	typ  reflect.Type
	ops  []op
	size uintptr
	raw  bool // one run of memory without padding is all of it
	done bool
	min  int       // bytes that any value takes
	flag []uintptr // offsets of truth values inside the runs
}

type action uint8

const (
	doRaw action = iota
	doString
	doSlice
	doArray // of elements that are not raw
	doPointer
	doMap
	doInterface
)

// op writes what lies at an offset.
type op struct {
	do     action
	offset uintptr
	size   uintptr // doRaw: bytes; doArray: elements
	typ    reflect.Type
	elem   *plan // of slices, arrays, pointers and values of maps
	key    *plan // of maps
}

// plan returns how a type is written. owner is the field that holds it.
func (c *Codec) plan(t reflect.Type, owner string) *plan {
	if p := c.plans[t]; p != nil && t.Kind() == reflect.Struct {
		return p
	}
	p := &plan{typ: t, size: t.Size()}
	if t.Kind() == reflect.Struct {
		c.plans[t] = p // before it is complete: types refer to themselves
	}
	c.add(p, t, 0, owner)
	p.raw = len(p.ops) == 1 && p.ops[0].do == doRaw && p.ops[0].size == p.size
	for _, o := range p.ops {
		switch o.do {
		case doRaw:
			p.min += int(o.size)
		case doArray:
			p.min += int(o.size) * o.elem.min
		default:
			p.min++
		}
	}
	p.done = true
	return p
}

// mute reports that nothing is written of a type.
func (p *plan) mute() bool { return p.done && len(p.ops) == 0 }

// add appends what writes a value of type t at an offset of p.
func (c *Codec) add(p *plan, t reflect.Type, at uintptr, owner string) {
	o := op{offset: at, typ: t}
	switch t.Kind() {
	case reflect.Bool:
		p.flag = append(p.flag, at)
		p.run(at, t.Size())
		return
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		p.run(at, t.Size())
		return
	case reflect.Struct:
		c.addStruct(p, t, at)
		return
	case reflect.Array:
		o.elem = c.plan(t.Elem(), owner)
		if o.elem.raw && len(o.elem.flag) == 0 {
			p.run(at, t.Size())
			return
		}
		o.do, o.size = doArray, uintptr(t.Len())
	case reflect.String:
		if !c.speaks(owner) {
			return
		}
		o.do = doString
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return
		}
		o.do, o.elem = doSlice, c.plan(t.Elem(), owner)
		if o.elem.mute() {
			return
		}
	case reflect.Pointer:
		o.do, o.elem = doPointer, c.plan(t.Elem(), owner)
	case reflect.Map:
		o.do, o.key, o.elem = doMap, c.plan(t.Key(), owner), c.plan(t.Elem(), owner)
		if o.key.mute() {
			return
		}
	case reflect.Interface:
		o.do = doInterface
	default:
		panic(fmt.Sprintf("freeze: %s is a %v, which cannot be written: drop it", owner, t))
	}
	p.ops = append(p.ops, o)
}

func (c *Codec) addStruct(p *plan, t reflect.Type, at uintptr) {
	for f := range t.Fields() {
		name := path.Base(t.PkgPath()) + "." + t.Name() + "." + f.Name
		if f.Name != "_" && !c.drop[name] {
			c.add(p, f.Type, at+f.Offset, name)
		}
	}
}

// run appends a run of memory, or makes the last one longer.
func (p *plan) run(at, size uintptr) {
	if n := len(p.ops); n > 0 {
		if last := &p.ops[n-1]; last.do == doRaw && last.offset+last.size == at {
			last.size += size
			return
		}
	}
	p.ops = append(p.ops, op{do: doRaw, offset: at, size: size})
}

// speaks decides whether the strings of a field are written.
func (c *Codec) speaks(field string) bool {
	if !c.strings[field] && !c.silent[field] && !slices.Contains(c.unjudged, field) {
		c.unjudged = append(c.unjudged, field)
	}
	return c.strings[field]
}

// of returns the plan of a type.
func (c *Codec) of(t reflect.Type) *plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan(t, t.String())
}

// Unjudged names the fields with strings, of all types met so far, of which
// Options say neither that they are written nor that they are silent.
func (c *Codec) Unjudged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.unjudged)
}

// Schema is a number for what is written of types: the same number, the same
// bytes for the same value.
func (c *Codec) Schema(types ...reflect.Type) uint64 {
	h := fnv.New64a()
	order := uint16(1)
	fmt.Fprintln(h, *(*byte)(unsafe.Pointer(&order)), unsafe.Sizeof(uintptr(0))) //nolint:gosec // asks for the byte order
	seen := map[*plan]bool{}
	var tell func(p *plan)
	tell = func(p *plan) {
		if p == nil || seen[p] {
			return
		}
		seen[p] = true
		fmt.Fprintln(h, p.typ, p.size)
		for _, o := range p.ops {
			fmt.Fprintln(h, o.do, o.offset, o.size, o.typ)
			tell(o.key)
			tell(o.elem)
		}
	}
	for _, t := range slices.Concat(types, c.concrete) {
		tell(c.of(t))
	}
	return h.Sum64()
}
