package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// timeoutFlags are the limits of attempts by type, as flag values.
type timeoutFlags map[string]time.Duration

// Bounds of the limits: jobs name theirs as a 32-bit number of milliseconds.
const (
	shortestTimeout = time.Millisecond
	longestTimeout  = 24 * 24 * time.Hour
	maxTimeouts     = 10_000
)

// Set adds entries such as pdf=30s. Several are separated by commas, or, if there
// is a line break, by line breaks alone: names of types may hold anything else.
func (f *timeoutFlags) Set(text string) error {
	if *f == nil {
		*f = timeoutFlags{}
	}
	separator := ","
	if strings.Contains(text, "\n") {
		text, separator = strings.TrimSuffix(text, "\n"), "\n"
	}
	for entry := range strings.SplitSeq(text, separator) {
		at := strings.LastIndexByte(entry, '=')
		if at < 1 || at > dispatcherd.MaxTypeLength {
			return fmt.Errorf("%q is not TYPE=DURATION, such as pdf=30s", entry)
		}
		d, err := time.ParseDuration(entry[at+1:])
		if err != nil || d < shortestTimeout || d > longestTimeout {
			return fmt.Errorf("%q: give a duration between %v and %v, such as 30s", entry, shortestTimeout, longestTimeout)
		}
		if (*f)[entry[:at]] = d; len(*f) > maxTimeouts {
			return fmt.Errorf("more than %d types have limits", maxTimeouts)
		}
	}
	return nil
}

// String lists the limits in the order of the types.
func (f *timeoutFlags) String() string {
	var entries []string
	for _, typ := range slices.Sorted(maps.Keys(*f)) {
		entries = append(entries, typ+"="+(*f)[typ].String())
	}
	return strings.Join(entries, ",")
}

// Type names the kind of value in help texts.
func (f *timeoutFlags) Type() string { return "type=duration" }
