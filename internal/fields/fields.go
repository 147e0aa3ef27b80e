// Package fields holds JSON objects to the names that they may have. What
// encoding/json lets pass would make a mistake of a caller's silent: a name in
// other than small letters, and a name that is given twice, of which it takes
// the last.
package fields

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// most is how many fields an object may have.
const most = 64

// Check finds a field of an object that has none of the names, or one that is
// given twice; what lies deeper is not looked at. The object was decoded before,
// so it is one valid JSON object, or null. There are at most 64 names, none of
// which needs an escape. The error is fit for the caller, whom it tells no value.
func Check(object []byte, names []string) error {
	var seen [most]bool       // by position in names
	depth, isName := 0, false // brackets open; in the outer object, a name comes next
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '{', '[':
			depth++
			isName = depth == 1
		case '}', ']':
			depth--
		case ',':
			isName = depth == 1
		case '"':
			text := object[i+1:]
			text = text[:stringEnd(text)]
			i += len(text) + 1
			if !isName {
				continue
			}
			isName = false
			field := slices.IndexFunc(names, func(name string) bool { return name == string(text) })
			switch {
			case field < 0:
				return fmt.Errorf("there is no field %q; the fields are %s", Short(string(text)), strings.Join(names, ", "))
			case seen[field]:
				return fmt.Errorf("%s is given twice", text)
			}
			seen[field] = true
		}
	}
	return nil
}

// shown is how much of what a caller wrote a message repeats, in bytes.
const shown = 64

// Short cuts what a caller wrote to what a message may repeat: reasons for many bad
// lines are held at once, and a name or a number may be as long as a whole line.
func Short(text string) string {
	if len(text) <= shown {
		return text
	}
	return strings.ToValidUTF8(text[:shown], "") + "…"
}

// stringEnd is where the quotation mark stands that ends a string, whose
// beginning was read.
func stringEnd(text []byte) int {
	end := 0
	for {
		end += bytes.IndexAny(text[end:], `"\`)
		if text[end] == '"' {
			return end
		}
		end += 2
	}
}
