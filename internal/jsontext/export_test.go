package jsontext

// WrittenOut returns the size of a valid payload with all digits of its numbers.
func WrittenOut(raw []byte) int {
	s := Scanner{text: raw, rules: sendable}
	s.Skip()
	return len(raw) + s.grown
}
