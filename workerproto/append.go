package workerproto

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// appendRaw appends raw JSON. It replaces newlines with spaces, because a newline would
// end the frame. In valid JSON a newline occurs only between tokens, so the value does
// not change.
func appendRaw(dst, raw []byte) []byte {
	at := len(dst)
	dst = append(dst, raw...)
	for i := bytes.IndexByte(dst[at:], '\n'); i >= 0; i = bytes.IndexByte(dst[at:], '\n') {
		at += i
		dst[at] = ' '
	}
	return dst
}

// appendString appends s as a JSON string. It replaces bytes that are not UTF-8 with
// U+FFFD, so that the frame is always valid.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if !jsontext.Plain(s[i]) {
			var quoted bytes.Buffer
			e := json.NewEncoder(&quoted)
			e.SetEscapeHTML(false)
			_ = e.Encode(s) // encoding a string cannot fail
			return append(dst, bytes.TrimSuffix(quoted.Bytes(), []byte{'\n'})...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// truncate cuts s to at most limit bytes. It never splits a character.
func truncate(s string, limit int) string {
	for len(s) > limit && limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:min(limit, len(s))]
}
