package api

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/grammar"
)

// plainBody is a body as nearly all are, read in one pass and without a copy. Like
// plainRequest it is a list of what is allowed. Whatever else a body may be, it is
// parseRequest's, which has the only word on what is wrong with one.
type plainBody struct {
	seen     plainFields
	kind     []byte // the type
	payload  []byte
	priority dispatcherd.Priority
	timeout  time.Duration
}

// plainFields are the fields that a plain body may have, each once.
type plainFields uint8

const (
	typeField plainFields = 1 << iota
	payloadField
	priorityField
	timeoutField
)

// parse reads a body, whose bytes b refers to. False says nothing about it.
func (b *plainBody) parse(text []byte) bool {
	at := grammar.Space(text, 0)
	if at == len(text) || text[at] != '{' {
		return false
	}
	for {
		name, value := plainName(text, at+1)
		if value == 0 {
			return false
		}
		field, end := b.take(string(name), text, value)
		if end == 0 || b.seen&field != 0 {
			return false
		}
		b.seen |= field
		if at = grammar.Space(text, end); at == len(text) {
			return false
		}
		switch text[at] {
		case ',':
		case '}':
			return b.seen&typeField != 0 && grammar.Space(text, at+1) == len(text)
		default:
			return false
		}
	}
}

// plainName reads the name of a field, and where its value begins; 0: it is not
// plain.
func plainName(text []byte, at int) (name []byte, value int) {
	at = grammar.Space(text, at)
	if at == len(text) || text[at] != '"' {
		return nil, 0
	}
	length := bytes.IndexByte(text[at+1:], '"') // an escaped quote follows no name that is known
	if length < 0 {
		return nil, 0
	}
	name = text[at+1 : at+1+length]
	at = grammar.Space(text, at+length+2)
	if at == len(text) || text[at] != ':' {
		return nil, 0
	}
	if at = grammar.Space(text, at+1); at == len(text) {
		return nil, 0
	}
	return name, at
}

// take reads the value of a field, and where it ends; 0: it is not plain.
func (b *plainBody) take(name string, text []byte, at int) (field plainFields, end int) {
	switch name {
	case "type":
		b.kind, end = plainString(text, at)
		if len(b.kind) == 0 || len(b.kind) > dispatcherd.MaxTypeLength {
			return 0, 0
		}
		return typeField, end
	case "payload":
		end, fault := grammar.Payload(text, at)
		b.payload = text[at:end]
		if fault != (grammar.Fault{}) || !utf8.Valid(b.payload) || !onOneLine(b.payload) {
			return 0, 0
		}
		return payloadField, end
	case "priority":
		number, end := plainDigits(text, at)
		if number > int(dispatcherd.MaxPriority) {
			return 0, 0
		}
		b.priority = dispatcherd.Priority(number)
		return priorityField, end
	case "timeout":
		b.timeout, end = plainSpan(text, at)
		return timeoutField, end
	}
	return 0, 0
}

// plainString reads a string of visible ASCII and spaces, without escapes.
func plainString(text []byte, at int) (word []byte, end int) {
	if text[at] != '"' {
		return nil, 0
	}
	end, escaped, fault := grammar.String(text, at)
	if escaped || fault.Malformed {
		return nil, 0
	}
	if word = text[at+1 : end-1]; !isPlainText(word) {
		return nil, 0
	}
	return word, end
}

// plainDigits reads a whole number of one or two digits. What may not follow it
// is no end of a field either.
func plainDigits(text []byte, at int) (number, end int) {
	for end = at; end < len(text) && text[end]-'0' <= 9; end++ {
		number = number*10 + int(text[end]-'0')
		if end-at == 2 {
			return 0, 0
		}
	}
	if end == at || text[at] == '0' && end > at+1 {
		return 0, 0
	}
	return number, end
}

// longestSpan is how many bytes of a duration are read here.
const longestSpan = 24

// plainSpan reads a Span.
func plainSpan(text []byte, at int) (span time.Duration, end int) {
	if text[at] == '"' {
		word, end := plainString(text, at)
		if len(word) > longestSpan {
			return 0, 0
		}
		span, err := time.ParseDuration(string(word))
		if err != nil {
			return 0, 0
		}
		return span, end
	}
	end, fault := grammar.Value(text, at)
	if fault.Malformed || end-at > longestSpan {
		return 0, 0
	}
	seconds, err := strconv.ParseFloat(string(text[at:end]), 64)
	if own, fits := spanOf(seconds); fits && err == nil {
		return time.Duration(own), end
	}
	return 0, 0
}

// onOneLine reports whether a payload can travel as it is.
func onOneLine(payload []byte) bool {
	return bytes.IndexByte(payload, '\n') < 0 && bytes.IndexByte(payload, '\r') < 0
}

// request is what the dispatcher is given. False: the timeout is out of bounds.
// The payload is a copy, since the bytes are the buffer's of a connection; kind is
// the type as a string.
func (b *plainBody) request(cfg *Config, kind string) (Request, bool) {
	r := Request{Type: kind, Priority: b.priority, Deadline: cfg.DefaultTimeout}
	if b.seen&timeoutField != 0 {
		if b.timeout < time.Millisecond || b.timeout > cfg.MaxTimeout {
			return r, false
		}
		r.Deadline = b.timeout
	}
	if b.seen&payloadField != 0 {
		r.Payload = bytes.Clone(b.payload)
	}
	return r, true
}
