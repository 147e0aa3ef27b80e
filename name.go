package dispatcherd

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// invisible are the control, format and separator characters and all other characters that
// Unicode ignores by default. Two names that differ only in them look the same, and some of
// them change how a terminal shows the text around them. The domain dispatcherd.job_type
// contains the same list, so it does not depend on the version of the Unicode tables.
var invisible = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0, 0x1f, 1}, {0x7f, 0x9f, 1}, {0xad, 0xad, 1}, {0x34f, 0x34f, 1}, {0x600, 0x605, 1}, {0x61c, 0x61c, 1}, {0x6dd, 0x6dd, 1},
		{0x70f, 0x70f, 1}, {0x890, 0x891, 1}, {0x8e2, 0x8e2, 1}, {0x115f, 0x1160, 1}, {0x17b4, 0x17b5, 1}, {0x180b, 0x180f, 1},
		{0x200b, 0x200f, 1}, {0x2028, 0x202e, 1}, {0x2060, 0x206f, 1}, {0x3164, 0x3164, 1}, {0xfe00, 0xfe0f, 1}, {0xfeff, 0xfeff, 1},
		{0xffa0, 0xffa0, 1}, {0xfff0, 0xfffb, 1},
	},
	R32: []unicode.Range32{
		{0x110bd, 0x110bd, 1}, {0x110cd, 0x110cd, 1}, {0x13430, 0x1343f, 1}, {0x1bca0, 0x1bca3, 1}, {0x1d173, 0x1d17a, 1}, {0xe0000, 0xe0fff, 1},
	},
	LatinOffset: 3,
}

// Invisible reports whether a type must not contain a character: a control, format or
// separator character, or another one that is not displayed.
func Invisible(r rune) bool { return unicode.Is(invisible, r) }

// CheckType returns why a type is invalid, nil if it is valid. Every program that accepts types
// uses it, and the table has the same rule. The error does not quote the type.
func CheckType(t string) error {
	switch {
	case t == "":
		return errors.New("type is missing")
	case len(t) > MaxTypeLength:
		return fmt.Errorf("type has %d bytes; at most %d are allowed", len(t), MaxTypeLength)
	case !utf8.ValidString(t):
		return errors.New("type is not UTF-8")
	}
	if at := strings.IndexFunc(t, Invisible); at >= 0 {
		r, _ := utf8.DecodeRuneInString(t[at:])
		return fmt.Errorf("type has the invisible character %U at byte %d: remove it", r, at+1)
	}
	return nil
}
