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

// maxTimeouts bounds how many types may have a limit.
const maxTimeouts = 10_000

// timeoutsValue are the limits of attempts by type, with entries such as pdf=30s.
func timeoutsValue(limits *map[string]time.Duration) cli.Value {
	parse := func(text string) error {
		if *limits == nil {
			*limits = map[string]time.Duration{}
		}
		for _, entry := range cli.Entries(text) {
			at := strings.LastIndexByte(entry, '=')
			if at < 1 {
				return fmt.Errorf("%q is not TYPE=DURATION, such as pdf=30s", entry)
			}
			typ, span := entry[:at], entry[at+1:]
			if err := dispatcherd.CheckType(typ); err != nil {
				return fmt.Errorf("%q: %w", entry, err)
			}
			d, err := time.ParseDuration(span)
			if err != nil || cli.Within(span, cli.ShortestAttempt, cli.LongestAttempt) != nil {
				return fmt.Errorf("%q: give a duration between %s and %s, such as 30s", entry, cli.ShortestAttempt, cli.LongestAttempt)
			}
			if (*limits)[typ] = d; len(*limits) > maxTimeouts {
				return fmt.Errorf("more than %d types have limits", maxTimeouts)
			}
		}
		return nil
	}
	format := func() string {
		var entries []string
		for _, typ := range slices.Sorted(maps.Keys(*limits)) {
			entries = append(entries, typ+"="+(*limits)[typ].String())
		}
		return strings.Join(entries, ",")
	}
	return cli.Value{Kind: "type=duration", Parse: parse, Format: format}
}
