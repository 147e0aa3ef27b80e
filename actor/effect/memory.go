package effect

// Memory is the memory of the frequent effects of one step. The Core reuses it in
// the next step, so that frequent effects need no allocation. The zero value is ready.
type Memory struct {
	Send    Buffer[Send]
	Started Buffer[Started]
	Answer  Buffer[Answer]
	Fetch   Buffer[Fetch]
	Claim   Buffer[Claim]
	Finish  Buffer[Finish]
}

// Reset makes all effects invalid.
func (m *Memory) Reset() {
	m.Send.reset()
	m.Started.reset()
	m.Answer.reset()
	m.Fetch.reset()
	m.Claim.reset()
	m.Finish.reset()
}

// Buffer contains effects of one type until Memory.Reset. A pointer to an effect
// stays valid when the buffer grows, because the pointer then refers to the previous
// array.
type Buffer[E any] []E

// Add stores an effect and returns a pointer to it, which is valid until
// Memory.Reset.
func (b *Buffer[E]) Add(e E) *E {
	*b = append(*b, e)
	return &(*b)[len(*b)-1]
}

// reset removes the effects, so that they keep no payload in memory.
func (b *Buffer[E]) reset() {
	clear(*b)
	*b = (*b)[:0]
}
