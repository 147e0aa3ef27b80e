package cronlibs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for a host without time zones

	"github.com/dispatcherd/dispatcherd/internal/schedule/cron/crontest"
)

// zones are the zones of the comparison.
var zones = []string{
	"UTC",
	"Europe/Berlin",
	"America/New_York",
	"Australia/Lord_Howe",
	"Pacific/Apia",
	"America/Havana",
	"Africa/Cairo",
	"Africa/Casablanca",
	"Asia/Kathmandu",
}

const casesPerZone = 300

// occasions returns what a library plans in a window, at most limit instants.
func occasions(l library, expr string, zone *time.Location, from, to time.Time, limit int) ([]time.Time, error) {
	var list []time.Time
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		list, err = search(l, expr, zone, from, to, limit)
	}()
	select {
	case <-ended:
		return list, err
	case <-time.After(2 * time.Second):
		return nil, errEndless // list and err belong to the search
	}
}

var (
	errEndless    = errors.New("the search does not end")
	errNoProgress = errors.New("the next occasion is not later")
)

func search(l library, expr string, zone *time.Location, from, to time.Time, limit int) (list []time.Time, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	next, err := l.parse(expr, zone)
	if err != nil {
		return nil, err
	}
	for at := from; len(list) < limit; {
		following := next(at)
		if following.IsZero() || !following.Before(to) {
			return list, nil
		}
		if !following.After(at) {
			return nil, errNoProgress
		}
		list, at = append(list, following.UTC()), following
	}
	return list, nil
}

// simple reports whether every library documents the same meaning for an expression: no
// seconds, every weekday, no L and W.
func simple(expr string) bool {
	words := strings.Fields(expr)
	return len(words) == 5 && words[4] == "*" && !strings.ContainsAny(words[2], "LW")
}

func TestLibrariesAgainstTheRules(t *testing.T) {
	for _, l := range libraries {
		cases, wrong, rejected, inUTC := 0, 0, 0, 0
		for _, name := range zones {
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range crontest.Cases(zone, casesPerZone, 1) {
				if !simple(c.Expr) {
					continue
				}
				cases++
				got, err := occasions(l, c.Expr, zone, c.From, c.To, len(c.Want)+1)
				if errors.Is(err, errEndless) {
					t.Logf("%s: %q in %s after %v: %v; the other cases in this zone are left out", l.name, c.Expr, name, c.From, err)
					wrong++
					break // the search still uses a processor
				}
				switch {
				case err != nil && !errors.Is(err, errNoProgress) && len(c.Want) > 0:
					rejected++
				case slices.EqualFunc(got, c.Want, time.Time.Equal):
				case name == "UTC":
					inUTC++
				default:
					wrong++
				}
			}
		}
		t.Logf("%-20s cases=%d wrong=%d wrong_in_utc=%d rejected=%d", l.name, cases, wrong, inUTC, rejected)
		if l.name == "dispatcherd" && wrong+inUTC+rejected > 0 {
			t.Errorf("package cron breaks its rules")
		}
	}
}

// cell describes occasions in the table.
func cell(list []time.Time, err error, layout string) string {
	switch {
	case errors.Is(err, errEndless):
		return "no end"
	case errors.Is(err, errNoProgress):
		return "no progress"
	case err != nil:
		return "rejected"
	case len(list) == 0:
		return "–"
	case len(list) > 2:
		return fmt.Sprintf("%d runs", len(list))
	}
	text := list[0].Format(layout)
	if len(list) == 2 {
		text += ", " + list[1].Format(layout)
	}
	return text
}

func TestTableOfTheDocument(t *testing.T) {
	document, err := os.ReadFile("../../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ expr, zone, what, from, to, layout string }{
		{"30 2 * * *", "Europe/Berlin", "gap", "2026-03-28T22:59:00Z", "2026-03-29T21:59:00Z", "15:04"},
		{"*/10 2 * * *", "Europe/Berlin", "gap", "2026-03-28T22:59:00Z", "2026-03-29T21:59:00Z", "15:04"},
		{"30 2 * * *", "Europe/Berlin", "repeated hour", "2026-10-24T21:59:00Z", "2026-10-25T22:59:00Z", "15:04"},
		{"*/15 * * * *", "Europe/Berlin", "repeated hour", "2026-10-24T21:59:00Z", "2026-10-25T22:59:00Z", "15:04"},
		{"15 2 * * *", "Australia/Lord_Howe", "gap of 30 min", "2026-10-03T13:29:00Z", "2026-10-04T12:59:00Z", "15:04"},
		{"0 0 * * *", "Africa/Cairo", "gap at midnight", "2026-04-23T21:59:00Z", "2026-04-24T20:59:00Z", "15:04"},
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-30 is missing", "2011-12-29T09:59:00Z", "2012-01-01T09:59:00Z", "2006-01-02"},
		{"0 0 31 2 *", "UTC", "no such date", "2026-01-01T00:00:00Z", "2028-01-01T00:00:00Z", "2006-01-02"},
		{"0 0 29 2 *", "UTC", "after 2096", "2096-03-01T00:00:00Z", "2105-01-01T00:00:00Z", "2006-01-02"},
	} {
		zone, err := time.LoadLocation(row.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, _ := time.Parse(time.RFC3339, row.from)
		to, _ := time.Parse(time.RFC3339, row.to)
		cells := []string{fmt.Sprintf("| `%s`", row.expr), row.zone + ", " + row.what}
		for _, l := range libraries {
			list, err := occasions(l, row.expr, zone, from, to, 200)
			cells = append(cells, cell(list, err, row.layout))
		}
		line := strings.Join(cells, " | ") + " |"
		t.Log(line)
		if !strings.Contains(string(document), "\n"+line+"\n") {
			t.Errorf("docs/schedules.md does not contain this row: %s", line)
		}
	}
}
