package grammar

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Plain reports whether c stands for itself inside a string and is ASCII.
func Plain(c byte) bool { return plain[c] }

var plain = func() (table [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

const (
	eachByte = 0x0101010101010101
	eachHigh = 0x8080808080808080
)

// special returns a word whose lowest set bit lies in the first byte of x that
// is a quote, a backslash or a control character; 0 if there is none. A byte
// above the first hit may be marked wrongly (borrow), which does not matter.
func special(x uint64) uint64 {
	quote := x ^ (eachByte * '"')
	slash := x ^ (eachByte * '\\')
	quote = (quote - eachByte) & ^quote
	slash = (slash - eachByte) & ^slash
	control := (x - eachByte*0x20) & ^x
	return (quote | slash | control) & eachHigh
}

// ordinary returns the index, from at on, of the first byte that does not stand
// for itself inside a string.
func ordinary(text []byte, at int) int {
	for len(text)-at >= 8 {
		if hit := special(binary.LittleEndian.Uint64(text[at:])); hit != 0 {
			return at + bits.TrailingZeros64(hit)>>3
		}
		at += 8
	}
	for at < len(text) && (plain[text[at]] || text[at] >= utf8.RuneSelf) {
		at++
	}
	return at
}

// quoted skips a string from its opening quote, and reports whether it holds an
// escape.
func (w *walker) quoted() (escaped bool) {
	w.at++
	for {
		w.at = ordinary(w.text, w.at)
		if w.at >= len(w.text) {
			w.malformed("a string without its end")
			return escaped
		}
		switch w.text[w.at] {
		case '"':
			w.at++
			return escaped
		case '\\':
			escaped = true
			w.escape()
		default:
			w.malformed("a control character in a string")
		}
		if w.fault.Malformed {
			return escaped
		}
	}
}

// escape skips one escape sequence. In strict mode it refuses NUL and lone
// surrogates, which jsonb and text columns refuse: one of them would spoil the
// statement that ends a whole batch of jobs.
func (w *walker) escape() {
	if w.at+1 >= len(w.text) {
		w.malformed("a malformed escape")
		return
	}
	switch w.text[w.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		w.at += 2
		return
	case 'u':
	default:
		w.malformed("a malformed escape")
		return
	}
	r, ok := hex4(w.text[w.at:])
	if !ok {
		w.malformed("a malformed escape")
		return
	}
	w.at += 6
	if !w.strict {
		return
	}
	if r == 0 {
		w.unfit("\\u0000 in a payload cannot be kept")
	}
	if utf16.IsSurrogate(r) {
		low, ok := hex4(w.text[w.at:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			w.unfit("half a surrogate pair in a payload cannot be kept")
			return
		}
		w.at += 6
	}
}

// hex4 decodes \uXXXX at the beginning of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// Unescape decodes the escapes of a string that String has found. Lone
// surrogates and NUL become U+FFFD: what it returns holds nothing
// that a text column refuses.
func Unescape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			out = append(out, text[i])
			i++
			continue
		}
		switch c := text[i+1]; c {
		case 'u':
			r, _ := hex4(text[i:])
			i += 6
			if utf16.IsSurrogate(r) {
				low, ok := hex4(text[i:])
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					i += 6
				} else {
					r = utf8.RuneError
				}
			}
			if r == 0 {
				r = utf8.RuneError
			}
			out = utf8.AppendRune(out, r)
			continue
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default:
			out = append(out, c)
		}
		i += 2
	}
	return out
}
