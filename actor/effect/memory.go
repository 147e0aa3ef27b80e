package effect

// Sends is the memory of the Send effects of one step, the only ones that each job needs. The Core
// reuses it in the next step, so that they need no allocation. A pointer to an effect stays valid when the memory grows,
// because the pointer then refers to the previous array. The zero value is ready.
type Sends []Send

// Add stores an effect and returns a pointer to it, which is valid until Reset.
func (s *Sends) Add(e Send) *Send {
	*s = append(*s, e)
	return &(*s)[len(*s)-1]
}

// Reset removes the effects, so that they keep no payload in memory.
func (s *Sends) Reset() {
	clear(*s)
	*s = (*s)[:0]
}
