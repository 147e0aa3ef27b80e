// Package segarray is an array in segments, with reuse of removed elements. It grows
// without copying its elements, so no step pays for the size of a table. An access
// reads no pointer of the element: the pointers to the segments are few and stay in
// the CPU cache.
package segarray

// Array is an array of elements with their index. The zero Array is empty.
type Array[ID ~int32, E any] struct {
	segments []*[size]E
	n        int
	unused   []ID
}

const (
	bits = 8
	size = 1 << bits
)

// Len returns the number of elements, including removed ones.
func (a *Array[ID, E]) Len() int { return a.n }

// At returns an element. The pointer stays valid.
func (a *Array[ID, E]) At(i ID) *E { return &a.segments[uint32(i)>>bits][uint32(i)%size] }

// Add returns the index of a new element, which is the zero value: the element that was
// removed last, or else one after the end.
func (a *Array[ID, E]) Add() ID {
	if last := len(a.unused) - 1; last >= 0 {
		i := a.unused[last]
		a.unused = a.unused[:last]
		return i
	}
	if a.n == len(a.segments)*size {
		a.segments = append(a.segments, new([size]E))
	}
	a.n++
	return ID(a.n - 1)
}

// Remove makes an element the zero value. Add uses it again.
func (a *Array[ID, E]) Remove(i ID) {
	var zero E
	*a.At(i) = zero
	a.unused = append(a.unused, i)
}
