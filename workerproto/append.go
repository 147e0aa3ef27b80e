package workerproto

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// appendMillis appends the member only if d is at least a millisecond.
func appendMillis(dst []byte, member string, d time.Duration) []byte {
	if ms := d.Milliseconds(); ms > 0 {
		return appendInt(append(dst, member...), ms)
	}
	return dst
}

// appendText appends the member, cut to MaxMessageLength, unless it is empty.
func appendText(dst []byte, member, text string) []byte {
	if text == "" {
		return dst
	}
	return appendString(append(dst, member...), truncate(text, MaxMessageLength))
}

// appendRaw appends the member with raw JSON, unless there is none. A newline would
// end the frame. In valid JSON it occurs only between tokens, so a space replaces it.
func appendRaw(dst []byte, member string, raw []byte) []byte {
	if len(raw) == 0 {
		return dst
	}
	dst = append(dst, member...)
	at := len(dst)
	dst = append(dst, raw...)
	for {
		i := bytes.IndexByte(dst[at:], '\n')
		if i < 0 {
			return dst
		}
		at += i
		dst[at] = ' '
	}
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s)
	}
	return append(dst, ']')
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD, so that what is sent is always a valid frame.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if jsontext.Plain(c) {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = appendEscape(append(dst, s[start:i]...), c)
		i += size
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\r':
		return append(dst, '\\', 'r')
	case c == '\t':
		return append(dst, '\\', 't')
	case c >= utf8.RuneSelf:
		return append(dst, "\ufffd"...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// truncate cuts s to at most limit bytes, between two characters.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
