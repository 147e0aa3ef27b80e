package jsontext

import (
	"bytes"
	"errors"
	"fmt"
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
// many numbers such as 1e1000 may make a text of more than MaxText bytes. CheckPayload takes for each number its length and the
// amount of its exponent, which is never less than what jsonb writes. If Postgres refuses a
// value that CheckPayload accepts, the value takes more than 1,000,000 bytes in the table.
func CheckPayload(raw []byte) error {
	s := Scanner{text: raw, rules: sendable}
	err := s.check()
	spaces := bytes.Count(raw, []byte{','}) + bytes.Count(raw, []byte{':'}) // jsonb writes one after each
	if err == nil && len(raw)+spaces+s.grown > MaxText {
		err = fmt.Errorf("its text has more than %d bytes with all digits of its numbers: write them as strings, or store large data elsewhere",
			MaxText)
	}
	return err
}

// CheckSendable reports whether raw is one JSON value whose parts are as in [CheckPayload]. Its length is not checked.
func CheckSendable(raw []byte) error {
	s := Scanner{text: raw, rules: sendable}
	return s.check()
}

// CheckValue reports whether raw is one JSON value that Postgres can store in a
// column of type json, jsonb or text.
func CheckValue(raw []byte) error {
	s := Scanner{text: raw, rules: storable}
	return s.check()
}

// check reads the whole text as one value.
func (s *Scanner) check() error {
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
