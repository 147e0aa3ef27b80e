package trace

import "strings"

// A slot's types stand in one field with | between them. Inside a type \| is that
// character, and \\ a backslash where one before |, before another or at the end would
// be taken for an escape. Any other backslash is itself, so that a list without either
// character in its types is what it always was.

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

// splitTypes reads what joinTypes has written, into memory of its own.
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
