package trace

import "strings"

// One field contains the types of a slot, separated by |. Inside a type, \| is the
// character |. A backslash is written as \\ if it precedes | or another backslash, or
// is at the end of the type, because otherwise it would be read as an escape. Any
// other backslash is written as it is.

// joinTypes writes a list of types.
func joinTypes(types []string) string {
	var b strings.Builder
	for i, typ := range types {
		if i > 0 {
			b.WriteByte('|')
		}
		for j := range len(typ) {
			last := j == len(typ)-1
			if typ[j] == '|' || typ[j] == '\\' && (last || escapable(typ[j+1])) {
				b.WriteByte('\\')
			}
			b.WriteByte(typ[j])
		}
	}
	return b.String()
}

// splitTypes reads what joinTypes has written. The result does not share
// memory with text.
func splitTypes(text string) []string {
	var types []string
	var typ strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '|':
			types = append(types, typ.String())
			typ.Reset()
			continue
		case text[i] == '\\' && i+1 < len(text) && escapable(text[i+1]):
			i++
		}
		typ.WriteByte(text[i])
	}
	return append(types, typ.String())
}

func escapable(c byte) bool { return c == '|' || c == '\\' }
