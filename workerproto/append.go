package workerproto

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// appendRaw appends raw JSON. A newline would end the frame. In valid JSON it occurs
// only between tokens, so a space replaces it.
func appendRaw(dst, raw []byte) []byte {
	at := len(dst)
	dst = append(dst, raw...)
	for i := bytes.IndexByte(dst[at:], '\n'); i >= 0; i = bytes.IndexByte(dst[at:], '\n') {
		at += i
		dst[at] = ' '
	}
	return dst
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD, so that what is sent is always a valid frame.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if !jsontext.Plain(s[i]) {
			var quoted bytes.Buffer
			e := json.NewEncoder(&quoted)
			e.SetEscapeHTML(false)
			_ = e.Encode(s) // a string: cannot fail
			return append(dst, bytes.TrimSuffix(quoted.Bytes(), []byte{'\n'})...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
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
