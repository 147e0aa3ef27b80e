package jsontext

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// The limits of docs/reference/protocol.md for frames.
const (
	MaxDepth  = 128  // arrays and objects inside one another
	MaxNumber = 1024 // characters of a number
)

// MaxText is the limit for the text of a payload in bytes, with all digits of its numbers.
// The domain dispatcherd.payload has the same limit.
const MaxText = 8 << 20

// What is wrong with a value that Postgres or a worker rejects.
var (
	tooDeep       = "more than " + strconv.Itoa(MaxDepth) + " nested arrays and objects; flatten it"
	longNumber    = "a number of more than 1,024 characters, written out"
	nullCharacter = `a string with \u0000, which Postgres cannot store`
	halfSurrogate = "a string with half a surrogate pair, which Postgres cannot store"
)

// CheckPayload reports whether raw is one JSON value that Postgres can store as
// jsonb and that can be sent to a worker afterwards. jsonb writes all digits of
// a number. So 1e1024 is JSON, but a row that contains it could never be sent, and
// many numbers such as 1e1000 may make a text of more than MaxText bytes. If Postgres refuses a
// value that CheckPayload accepts, the value takes more than 1,000,000 bytes in the table.
func CheckPayload(raw []byte) error {
	return check(raw, sendable)
}

// CheckValue reports whether raw is one JSON value that Postgres can store in a
// column of type json, jsonb or text.
func CheckValue(raw []byte) error {
	return check(raw, storable)
}

func check(raw []byte, rules rules) error {
	s := Scanner{text: raw, rules: rules}
	if rules == sendable {
		s.grown = bytes.Count(raw, []byte{','}) + bytes.Count(raw, []byte{':'}) // jsonb writes a space after each
	}
	s.Skip()
	s.End()
	switch {
	case s.fault.What == "":
		return nil
	case s.fault.Malformed && !s.fault.TooDeep():
		return fmt.Errorf("it is not JSON: %s at byte %d", s.fault.What, s.at)
	}
	return errors.New("it contains " + s.fault.What)
}

// CheckStored reports whether a payload that Postgres stored as jsonb can be sent
// to a worker. It runs for every job that is sent, so it scans the text only if
// the text may exceed a limit. It samples every MaxNumber-th byte, so a longer
// number contains a sampled byte. Nesting deeper than MaxDepth needs more than
// MaxDepth opening brackets.
func CheckStored(raw []byte) error {
	suspect := bytes.Count(raw, []byte{'['})+bytes.Count(raw, []byte{'{'}) > MaxDepth
	for at := MaxNumber - 1; at < len(raw) && !suspect; at += MaxNumber {
		suspect = raw[at] == '.' || isDigit(raw[at])
	}
	if suspect {
		return CheckValue(raw)
	}
	return nil
}

// checkNumber checks the length of a number. exponentDigits is the number of
// digits of its exponent.
func (s *Scanner) checkNumber(number []byte, exponentDigits int) {
	switch {
	case s.rules == sendable:
		if exponentDigits == 0 && len(number) <= MaxNumber {
			return
		}
		written := writtenOut(number)
		s.grown += written - len(number)
		if written > MaxNumber {
			s.reject(longNumber)
		} else if s.fault.What == "" && len(s.text)+s.grown > MaxText {
			s.reject(
				fmt.Sprintf(
					"numbers with which its text has more than %d bytes when all digits are written out (from byte %d on): write them as strings",
					MaxText,
					s.at-len(number),
				),
			)
		}
	case len(number) > MaxNumber || exponentDigits > 4:
		s.reject(longNumber)
	}
}

// writtenOut returns the number of characters that jsonb needs for a number.
// jsonb writes no exponent, and keeps all given digits after the point.
func writtenOut(number []byte) int {
	at := bytes.IndexAny(number, "eE")
	if at < 0 && len(number) <= MaxNumber {
		return len(number)
	}
	exponent := 0
	if at >= 0 {
		exponent, _ = strconv.Atoi(string(number[at+1:])) // out of range: the largest or smallest int
		exponent = min(max(exponent, -1_000_000), 1_000_000)
		number = number[:at]
	}
	unsigned := bytes.TrimPrefix(number, []byte{'-'})
	whole, fraction, _ := bytes.Cut(unsigned, []byte{'.'})
	digits := slices.Concat(whole, fraction)
	zeros := len(digits) - len(bytes.TrimLeft(digits, "0"))
	size := 1
	if zeros < len(digits) { // the number is not 0
		size = max(1, len(whole)-zeros+exponent) + len(number) - len(unsigned)
	}
	if decimals := len(fraction) - exponent; decimals > 0 {
		size += 1 + decimals
	}
	return size
}
