package jsontext

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// CheckNames rejects an object with a member that is not in names, or that is given
// twice. encoding/json would accept the object: it ignores case, and takes the last of
// several members. CheckNames does not look into nested objects. With others, the object may have other members, without an
// escape in their names.
//
// The object must be valid JSON or null, so the caller decodes it first. A
// name with an escape is rejected. The error contains no value and can be
// shown to a caller.
func CheckNames(object []byte, names []string, others bool) error {
	given := make([]bool, len(names))
	s := NewScanner(object)
	for more := s.Begin('{'); more; more = s.More('}') {
		name, _ := s.rawName()
		s.Skip()
		if s.Malformed() {
			return nil // nested too deep, which CheckPayload reports
		}
		i := slices.Index(names, string(name))
		switch {
		case i < 0 && others && !bytes.ContainsRune(name, '\\'):
			continue
		case i < 0:
			return fmt.Errorf("there is no field %q; the fields are %s", Excerpt(string(name)), strings.Join(names, ", "))
		case given[i]:
			return fmt.Errorf("%s is given twice", name)
		}
		given[i] = true
	}
	return nil
}

// excerpt is how many bytes of a caller's text an error message repeats.
const excerpt = 64

// Excerpt shortens a caller's text for an error message. A name or number may be
// as long as the whole input, and the errors of many lines are kept in memory.
func Excerpt(text string) string {
	if len(text) <= excerpt {
		return text
	}
	return strings.ToValidUTF8(text[:excerpt], "") + "…"
}
