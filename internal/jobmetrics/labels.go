// Package jobmetrics counts jobs by type for metrics. The number of label values is
// bounded: types beyond the bound count as Other.
package jobmetrics

import (
	"sync"
	"unicode/utf8"
)

// MaxTypes is the number of types with a label of their own.
const MaxTypes = 100

// Other is the label of all other types.
const Other = "other"

// Labels assigns labels to types. The first MaxTypes types get their name until the
// restart of the program. All later types get Other, and so do names that are no UTF-8
// text. Its methods may be called from any goroutine.
type Labels struct {
	mu   sync.Mutex
	kept map[string]struct{}
}

// Of returns the label of a type.
func (l *Labels) Of(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.kept[name]; ok {
		return name
	}
	if len(l.kept) >= MaxTypes || !utf8.ValidString(name) {
		return Other
	}
	if l.kept == nil {
		l.kept = make(map[string]struct{}, MaxTypes)
	}
	l.kept[name] = struct{}{}
	return name
}
