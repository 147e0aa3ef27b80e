package api

import (
	"bytes"
	"strconv"
)

// The plainest request is answered without net/http (see plainConn). What
// counts as plain is a list of what is allowed, and everything else, however
// harmless, is net/http's: nothing is refused here, and nothing is interpreted
// of which two readers could have two opinions.

// plainLine begins every plain request.
const plainLine = "POST " + plainPath + " HTTP/1.1\r\n"

const plainPath = "/v1/requests"

// plainRequest is where things are in the bytes of a plain request.
type plainRequest struct{ head, body int } // their lengths; the body follows the head

// parsePlain recognises a plain request that is complete. Its length is
// head + body; what follows belongs to the next one.
func parsePlain(b []byte) (p plainRequest, ok bool) {
	if !bytes.HasPrefix(b, []byte(plainLine)) {
		return p, false
	}
	at := len(plainLine)
	var seen plainHeaders
	p.body = -1
	for {
		end := bytes.IndexByte(b[at:], '\n')
		if end < 1 || b[at+end-1] != '\r' { // not there yet, or a bare line feed
			return p, false
		}
		line := b[at : at+end-1]
		at += end + 1
		if len(line) == 0 {
			break
		}
		if !seen.take(line, &p.body) {
			return p, false
		}
	}
	p.head = at
	return p, seen&hostHeader != 0 && p.body >= 0 && len(b)-p.head >= p.body
}

// plainHeaders are the headers that a plain request may have, each once.
type plainHeaders uint8

const (
	hostHeader plainHeaders = 1 << iota
	lengthHeader
	typeHeader
	acceptHeader
	agentHeader
	encodingHeader
	connectionHeader
)

// take notes a header, and the length of the body. False means that it is not
// plain: unknown, there twice, continued, or with a value that says something.
func (seen *plainHeaders) take(line []byte, length *int) bool {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 || !isPlainText(line) {
		return false
	}
	name, value := line[:colon], plainValue(line[colon+1:])
	var header plainHeaders
	ok := true
	switch {
	case isPlainName(name, "host"):
		header, ok = hostHeader, isPlainHost(value)
	case isPlainName(name, "content-length"):
		header = lengthHeader
		*length, ok = plainLength(value)
	case isPlainName(name, "content-type"):
		header, ok = typeHeader, string(value) == "application/json" || string(value) == "application/x-www-form-urlencoded"
	case isPlainName(name, "accept"):
		header, ok = acceptHeader, string(value) == "*/*" || string(value) == "application/json"
	case isPlainName(name, "user-agent"):
		header = agentHeader
	case isPlainName(name, "accept-encoding"):
		header = encodingHeader // nothing is ever compressed
	case isPlainName(name, "connection"):
		header, ok = connectionHeader, string(value) == "keep-alive"
	default:
		return false
	}
	ok = ok && *seen&header == 0
	*seen |= header
	return ok
}

// plainValue is text without the spaces and tabs around it.
func plainValue(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	for len(text) > 0 && (text[len(text)-1] == ' ' || text[len(text)-1] == '\t') {
		text = text[:len(text)-1]
	}
	return text
}

// isPlainName compares visible ASCII with a name of small letters and hyphens,
// whatever case its letters have: no other visible character becomes a small letter
// or a hyphen by that bit.
func isPlainName(name []byte, want string) bool {
	if len(name) != len(want) {
		return false
	}
	for i, c := range name {
		if c|0x20 != want[i] {
			return false
		}
	}
	return true
}

// isPlainText reports whether a header line consists of visible ASCII, spaces
// and tabs.
func isPlainText(line []byte) bool {
	for _, c := range line {
		if (c < ' ' && c != '\t') || c > '~' {
			return false
		}
	}
	return true
}

// isPlainHost takes names and addresses; what else a host may be is net/http's.
func isPlainHost(host []byte) bool {
	for _, c := range host {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == ':', c == '_':
		default:
			return false
		}
	}
	return len(host) > 0
}

// plainLength reads digits, at most seven.
func plainLength(text []byte) (int, bool) {
	if len(text) == 0 || len(text) > 7 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(string(text))
	return n, err == nil
}
