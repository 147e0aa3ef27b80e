package grammar

import "github.com/dispatcherd/dispatcherd/internal/carry"

// Fault is what is wrong with a value. The zero value is: nothing.
type Fault struct {
	What      string // for people; never a part of the text
	Malformed bool   // it is no JSON, or nested too deep; otherwise Postgres could not keep it
}

// Space returns where the next byte stands, from at on, that is no white space.
func Space(text []byte, at int) int {
	for at < len(text) {
		switch text[at] {
		case ' ', '\t', '\n', '\r':
			at++
		default:
			return at
		}
	}
	return at
}

// Value returns where the value ends that begins at at, behind white space or not,
// or where it is malformed.
func Value(text []byte, at int) (end int, fault Fault) {
	w := walker{text: text, at: at}
	w.value(0)
	return w.at, w.fault
}

// Payload is Value for what Postgres must be able to keep, in a column of type
// json, jsonb or text: no \u0000, no half surrogate pair, numbers of sane size. The
// end of what only cannot be kept is right.
func Payload(text []byte, at int) (end int, fault Fault) {
	w := walker{text: text, at: at, strict: true}
	w.value(0)
	return w.at, w.fault
}

// String is Value for a string whose opening quote stands at at; escaped is whether
// it holds an escape.
func String(text []byte, at int) (end int, escaped bool, fault Fault) {
	w := walker{text: text, at: at}
	escaped = w.quoted()
	return w.at, escaped, w.fault
}

// walker reads one value from front to back, and ends at the first byte that is
// malformed. After a fault of another kind it reads on.
type walker struct {
	text   []byte
	at     int
	fault  Fault
	strict bool
}

func (w *walker) malformed(what string) {
	if !w.fault.Malformed {
		w.fault = Fault{what, true}
	}
}

// unfit records what cannot be kept.
func (w *walker) unfit(what string) {
	if w.fault.What == "" {
		w.fault.What = what
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (w *walker) peek() byte {
	w.at = Space(w.text, w.at)
	if w.at < len(w.text) {
		return w.text[w.at]
	}
	return 0
}

func (w *walker) value(depth int) {
	c := w.peek()
	if depth >= carry.MaxDepth && (c == '{' || c == '[') {
		w.malformed("nested too deep")
		return
	}
	switch c {
	case '"':
		w.quoted()
	case '{':
		w.members(depth)
	case '[':
		w.elements(depth)
	case 't':
		w.literal("true")
	case 'f':
		w.literal("false")
	case 'n':
		w.literal("null")
	default:
		if c != '-' && !isDigit(c) {
			w.malformed("a value is missing")
			return
		}
		w.number()
	}
}

func (w *walker) members(depth int) {
	w.at++
	if w.peek() == '}' {
		w.at++
		return
	}
	for {
		if w.peek() != '"' {
			w.malformed("a member's name is missing")
			return
		}
		w.quoted()
		if w.fault.Malformed {
			return
		}
		if w.peek() != ':' {
			w.malformed("a colon is missing")
			return
		}
		w.at++
		w.value(depth + 1)
		if !w.more('}') {
			return
		}
	}
}

func (w *walker) elements(depth int) {
	w.at++
	if w.peek() == ']' {
		w.at++
		return
	}
	for {
		w.value(depth + 1)
		if !w.more(']') {
			return
		}
	}
}

// more reports whether another member or element follows.
func (w *walker) more(end byte) bool {
	if w.fault.Malformed {
		return false
	}
	switch w.peek() {
	case ',':
		w.at++
		return true
	case end:
		w.at++
	default:
		w.malformed("a comma or the end is missing")
	}
	return false
}

func (w *walker) literal(word string) {
	if len(w.text)-w.at < len(word) || string(w.text[w.at:w.at+len(word)]) != word {
		w.malformed("a malformed word")
		return
	}
	w.at += len(word)
}

// number skips a number. In strict mode it refuses what no database column and
// no float64 holds: more than carry.MaxNumber bytes or an exponent of five digits.
func (w *walker) number() {
	start := w.at
	if w.text[w.at] == '-' {
		w.at++
	}
	first := w.at
	switch n := w.run(); {
	case n == 0:
		return
	case n > 1 && w.text[first] == '0':
		w.malformed("a malformed number")
		return
	}
	if w.at < len(w.text) && w.text[w.at] == '.' {
		w.at++
		if w.run() == 0 {
			return
		}
	}
	exponent := 0
	if w.at < len(w.text) && w.text[w.at]|0x20 == 'e' {
		w.at++
		if w.at < len(w.text) && (w.text[w.at] == '+' || w.text[w.at] == '-') {
			w.at++
		}
		if exponent = w.run(); exponent == 0 {
			return
		}
	}
	if w.strict && (w.at-start > carry.MaxNumber || exponent > 4) {
		w.unfit("a number in a payload is too large to be kept")
	}
}

// run skips one digit or more and returns how many; 0 is malformed.
func (w *walker) run() int {
	start := w.at
	for w.at < len(w.text) && isDigit(w.text[w.at]) {
		w.at++
	}
	if w.at == start {
		w.malformed("a malformed number")
	}
	return w.at - start
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
