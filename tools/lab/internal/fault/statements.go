package fault

import (
	"bytes"
	"encoding/binary"
)

// The types of messages of the Postgres protocol that the proxy interprets.
const (
	bind          = 'B' // client: run a prepared statement
	query         = 'Q' // client: run this text
	readyForQuery = 'Z' // server: the transaction is over, committed or not
)

// statements parses one direction of a Postgres connection, which may arrive in
// pieces of any size. It finds no statements in other protocols.
type statements struct {
	startup bool   // the next message is the first one of the client, which has no type byte
	head    []byte // of the current message: type, length and the beginning of its body
	left    int    // bytes of the body that have not arrived
}

// bodyKept bounds the part of a message that is kept: two short names.
const bodyKept = 256

// read calls a function for every complete message, with the name of the statement
// of a bind or the text of a query.
func (s *statements) read(piece []byte, tell func(kind byte, statement string)) {
	for len(piece) > 0 {
		if s.left == 0 {
			need := s.headLength() - len(s.head)
			n := min(need, len(piece))
			s.head, piece = append(s.head, piece[:n]...), piece[n:]
			if n < need {
				return
			}
			s.left = max(int(binary.BigEndian.Uint32(s.head[len(s.head)-4:]))-4, 0)
		}
		n := min(s.left, len(piece))
		if room := bodyKept - len(s.head); room > 0 {
			s.head = append(s.head, piece[:min(n, room)]...)
		}
		s.left -= n
		piece = piece[n:]
		if s.left == 0 {
			if !s.startup {
				tell(s.head[0], statementOf(s.head))
			}
			s.startup, s.head = false, s.head[:0]
		}
	}
}

func (s *statements) headLength() int {
	if s.startup {
		return 4
	}
	return 5
}

// statementOf returns the second of the two names at the beginning of a bind, or
// the text of a query.
func statementOf(message []byte) string {
	rest := message[5:]
	switch message[0] {
	case bind:
		_, rest, _ = bytes.Cut(rest, []byte{0})
	case query:
	default:
		return ""
	}
	name, _, _ := bytes.Cut(rest, []byte{0})
	return string(name)
}
