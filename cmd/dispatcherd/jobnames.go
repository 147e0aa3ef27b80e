package main

import (
	"bytes"
	"fmt"
	"slices"
)

// checkNames finds what encoding/json lets pass: a field's name in other than
// small letters, and a field that is given twice, of which it takes the last.
// line was decoded into a newJob before, so it is one valid object, or null.
func checkNames(line []byte) error {
	var seen [64]bool         // by position in jobFieldNames
	depth, isName := 0, false // brackets open; in the outer object, a name comes next
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '{', '[':
			depth++
			isName = depth == 1
		case '}', ']':
			depth--
		case ',':
			isName = depth == 1
		case '"':
			text := line[i+1:]
			text = text[:stringEnd(text)]
			i += len(text) + 1
			if !isName {
				continue
			}
			isName = false
			field := slices.IndexFunc(jobFieldNames, func(name string) bool { return name == string(text) })
			switch {
			case field < 0:
				return fmt.Errorf("there is no field %q; the fields are "+jobFields, text)
			case seen[field]:
				return fmt.Errorf("%s is given twice", text)
			}
			seen[field] = true
		}
	}
	return nil
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
