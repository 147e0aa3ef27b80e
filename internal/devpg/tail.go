package devpg

import (
	"io"
	"strings"
	"sync"
)

// tailLength is how many bytes at the end of the log are kept for error messages.
const tailLength = 4 << 10

// tail passes on the log of the server and keeps the end of the log.
type tail struct {
	next io.Writer // may be nil

	mu   sync.Mutex // the log may be written while an error reads text
	text []byte
}

// Write implements io.Writer. It never fails, because a broken log must not stop the server.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailLength; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	t.mu.Unlock()
	if t.next != nil {
		_, _ = t.next.Write(p)
	}
	return len(p), nil
}

// String returns the end of the log.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// quote returns the end of the log, indented, to be appended to an error. The result is
// empty if the log is empty.
func (t *tail) quote() string {
	text := strings.TrimSpace(t.String())
	if text == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(text, "\n", "\n    ")
}
