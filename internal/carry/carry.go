// Package carry says what a row can carry to a worker, and what its columns hold. The table keeps
// jsonb, which writes every number out in full and nests as deep as one likes; a
// frame has bounds for both. A job beyond them is inserted like any other and
// fails for good when its turn comes, so that whoever inserts it had better be
// told at once.
package carry

import (
	"bytes"
	"errors"
	"fmt"
)

// The bounds of docs/protocol.md.
const (
	MaxDepth  = 128  // arrays and objects inside one another
	MaxNumber = 1024 // characters of a number, written out
)

// Errors of Check.
var (
	ErrDepth  = fmt.Errorf("it nests more than %d arrays and objects, which no worker can be sent", MaxDepth)
	ErrNumber = errors.New("it holds a number of more than 1,024 characters, written out, which no worker can be sent")
)

// Check looks for what no worker can be sent in one valid JSON value. Of what is
// not JSON it says nothing useful.
func Check(json []byte) error {
	depth := 0
	for i := 0; i < len(json); i++ {
		switch c := json[i]; {
		case c == '"':
			i += stringEnd(json[i+1:]) + 1
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return ErrDepth
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || isDigit(c):
			n, plain := numberEnd(json[i:])
			if (n > MaxNumber || !plain) && length(json[i:i+n]) > MaxNumber {
				return ErrNumber
			}
			i += n - 1
		}
	}
	return nil
}

// stringEnd is where the quote is that ends a string.
func stringEnd(text []byte) int {
	for from := 0; ; {
		n := bytes.IndexByte(text[from:], '"')
		if n < 0 {
			return len(text)
		}
		quote := from + n
		before := quote // of the backslashes in front of it, an odd one makes it part of the string
		for before > from && text[before-1] == '\\' {
			before--
		}
		if (quote-before)%2 == 0 {
			return quote
		}
		from = quote + 1
	}
}

// numberEnd is where a number ends; plain says that it has no exponent.
func numberEnd(text []byte) (n int, plain bool) {
	plain = true
	for i, c := range text {
		switch {
		case isDigit(c) || c == '.' || c == '-':
		case c == 'e' || c == 'E' || c == '+':
			plain = false
		default:
			return i, plain
		}
	}
	return len(text), plain
}

// length is how many characters a number has as jsonb writes it: no exponent, and
// as many digits behind the point as it was given.
func length(number []byte) int {
	var n number10
	n.read(number)
	if !n.exponent && len(number) <= MaxNumber {
		return len(number)
	}
	whole := 1
	if n.first >= 0 {
		whole = max(1, n.point-n.first+n.shift)
	}
	size := whole
	if behind := n.digits - n.point - n.shift; behind > 0 {
		size += 1 + behind
	}
	if n.negative && n.first >= 0 {
		size++
	}
	return size
}

// number10 is a number as a row of digits and a power of ten.
type number10 struct {
	negative, exponent bool
	digits             int // of the mantissa, both sides of the point
	point              int // how many of them are before it
	first              int // which is the first that is not 0; -1: none
	shift              int // the exponent, no further from 0 than a million
}

func (n *number10) read(text []byte) {
	*n = number10{first: -1, point: -1}
	down := false
	for _, c := range text {
		switch {
		case n.exponent && isDigit(c):
			n.shift = min(n.shift*10+int(c-'0'), 1_000_000)
		case isDigit(c):
			if c != '0' && n.first < 0 {
				n.first = n.digits
			}
			n.digits++
		case c == '.':
			n.point = n.digits
		case c == '-':
			down = n.exponent
			n.negative = n.negative || !n.exponent
		case c == 'e' || c == 'E':
			n.exponent = true
		}
	}
	if n.point < 0 {
		n.point = n.digits
	}
	if down {
		n.shift = -n.shift
	}
}

func isDigit(c byte) bool { return c-'0' <= 9 }
