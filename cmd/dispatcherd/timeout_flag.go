package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
)

// timeoutFlags are the limits of attempts by type, as flag values.
type timeoutFlags map[string]time.Duration

// maxTimeouts bounds how many types may have a limit.
const maxTimeouts = 10_000

// Set adds entries such as pdf=30s.
func (f *timeoutFlags) Set(text string) error {
	if *f == nil {
		*f = timeoutFlags{}
	}
	for _, entry := range cli.Entries(text) {
		at := strings.LastIndexByte(entry, '=')
		if at < 1 {
			return fmt.Errorf("%q is not TYPE=DURATION, such as pdf=30s", entry)
		}
		if err := dispatcherd.CheckType(entry[:at]); err != nil {
			return fmt.Errorf("%q: %w", entry, err)
		}
		d, err := time.ParseDuration(entry[at+1:])
		if err != nil || cli.Within(entry[at+1:], cli.ShortestAttempt, cli.LongestAttempt) != nil {
			return fmt.Errorf("%q: give a duration between %s and %s, such as 30s", entry, cli.ShortestAttempt, cli.LongestAttempt)
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
