package cron_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
)

// occasion is an expected occasion: the instant in UTC, and its note.
type occasion struct {
	at   string
	note cron.Note
}

func plain(instants ...string) (list []occasion) {
	for _, at := range instants {
		list = append(list, occasion{at, cron.Plain})
	}
	return list
}

// between returns the occasions in (from, to].
func between(t *testing.T, expr, zone, from, to string) (list []occasion) {
	t.Helper()
	e, err := cron.Parse(expr)
	require.NoError(t, err)
	location, err := time.LoadLocation(zone)
	require.NoError(t, err)
	at, err := time.Parse("2006-01-02 15:04", from)
	require.NoError(t, err)
	end, err := time.Parse("2006-01-02 15:04", to)
	require.NoError(t, err)
	for {
		next, ok := e.Next(at, location)
		require.True(t, ok)
		if next.After(end) {
			return list
		}
		require.True(t, next.After(at))
		list = append(list, occasion{next.Format("2006-01-02 15:04:05"), e.Note(next, location)})
		at = next
	}
}

// The table of docs/how-to/schedules.md, and the attacks on schedules that concern daylight
// saving time. All instants are in UTC.
func TestDaylightSavingTime(t *testing.T) {
	for _, c := range []struct {
		name, expr, zone, from, to string
		want                       []occasion
	}{
		{"a time in a gap runs at its end", "30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", "2026-03-30 12:00",
			[]occasion{{"2026-03-29 01:00:00", cron.Moved}, {"2026-03-30 00:30:00", cron.Plain}}},
		{"several times in a gap are one run", "*/10 2 * * *", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 12:00",
			[]occasion{{"2026-03-29 01:00:00", cron.Moved}}},
		{"a time in a gap and the end of the gap are one run", "0 2,3 * * *", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 12:00",
			[]occasion{{"2026-03-29 01:00:00", cron.Moved}}},
		{"a skipped hour does not run", "30 * * * *", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 02:00",
			plain("2026-03-29 00:30:00", "2026-03-29 01:30:00")},
		{"a step is a *", "0 */2 * * *", "Europe/Berlin", "2026-03-28 22:00", "2026-03-29 03:00",
			plain("2026-03-28 23:00:00", "2026-03-29 02:00:00")},
		{"a repeated time runs the first time", "30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", "2026-10-26 12:00",
			[]occasion{{"2026-10-25 00:30:00", cron.First}, {"2026-10-26 01:30:00", cron.Plain}}},
		{"both repeated hours run", "30 * * * *", "Europe/Berlin", "2026-10-24 23:00", "2026-10-25 02:00",
			[]occasion{{"2026-10-24 23:30:00", cron.Plain}, {"2026-10-25 00:30:00", cron.First}, {"2026-10-25 01:30:00", cron.Repeated}}},
		{"a range of hours is no *", "30 0-23 * * *", "Europe/Berlin", "2026-10-24 23:00", "2026-10-25 02:40",
			[]occasion{{"2026-10-24 23:30:00", cron.Plain}, {"2026-10-25 00:30:00", cron.First}, {"2026-10-25 02:30:00", cron.Plain}}},
		{"a gap of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", "2026-10-04 12:00",
			[]occasion{{"2026-10-03 15:30:00", cron.Moved}}},
		{"half an hour is repeated", "15,45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00", "2026-04-05 12:00",
			[]occasion{{"2026-04-04 14:15:00", cron.Plain}, {"2026-04-04 14:45:00", cron.First}}},
		{"a day without midnight", "0 0 * * *", "Africa/Cairo", "2026-04-23 12:00", "2026-04-24 22:00",
			[]occasion{{"2026-04-23 22:00:00", cron.Moved}, {"2026-04-24 21:00:00", cron.Plain}}},
		{"a repeated hour before midnight", "30 23 * * *", "Africa/Cairo", "2026-10-29 12:00", "2026-10-30 12:00",
			[]occasion{{"2026-10-29 20:30:00", cron.First}}},
		{"a change that the rule of the zone does not contain", "30 23 * * *", "America/Ciudad_Juarez", "2022-11-29 12:00", "2022-11-30 12:00",
			[]occasion{{"2022-11-30 05:30:00", cron.First}}},
		{"the day does not exist", "0 12 * * *", "Pacific/Apia", "2011-12-29 00:00", "2012-01-01 00:00",
			plain("2011-12-29 22:00:00", "2011-12-30 22:00:00", "2011-12-31 22:00:00")},
		{"the date does not exist", "0 12 30 12 *", "Pacific/Apia", "2011-01-01 00:00", "2012-12-31 00:00",
			plain("2012-12-29 22:00:00")},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, between(t, c.expr, c.zone, c.from, c.to))
		})
	}
}

func TestQuartersOfTheDayThatHas25Hours(t *testing.T) {
	require.Len(t, between(t, "*/15 * * * *", "Europe/Berlin", "2026-10-24 21:59", "2026-10-25 22:59"), 100)
}

func TestLeapDaysAfter2096(t *testing.T) {
	require.Equal(t, plain("2104-02-29 00:00:00"), between(t, "0 0 29 2 *", "UTC", "2096-02-29 00:00", "2107-01-01 00:00"))
}
