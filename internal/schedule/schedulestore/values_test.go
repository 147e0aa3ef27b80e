package schedulestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// Postgres writes numbers in another way and stores whole microseconds. The comparison of "schedule apply" must not take this for a
// difference, otherwise each apply makes the same edit again.
func TestStoredScheduleDoesNotDifferFromItsDefinition(t *testing.T) {
	w := newWorld(t)
	for _, payload := range []string{
		`1e21`, `1e-7`, `-0.0`, `-0`, `1.50`, `[1E+2, {"a": 0.10, "b": [12345678901234567890.5, 1e400]}]`, `null`, `""`, `"\u00e9"`,
		`{"b": 1, "a": null}`, `false`, `{}`, `[]`, `"1e21"`,
	} {
		w.converges("payload "+payload, func(s *contract.Schedule) { s.Payload = []byte(payload) })
	}
	for _, d := range []time.Duration{0, 1, 499, 999, 1500, 1_000_000_001, time.Hour + 999} {
		w.converges("durations "+d.String(), func(s *contract.Schedule) {
			s.Jitter, s.CatchUp = contract.Duration(d), contract.Duration(d)
			s.Kind, s.Spec, s.Every = contract.Interval, "", contract.Duration(time.Second+d)
		})
	}
	zone := time.FixedZone("", -3600)
	for _, at := range []time.Time{
		time.Date(1970, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(2030, 1, 2, 3, 4, 5, 123_456_789, zone),
		time.Date(2199, 12, 31, 0, 0, 0, 999_999_999, time.UTC),
	} {
		w.converges(at.String(), func(s *contract.Schedule) { s.StartsAt = &at })
		w.converges(at.String(), func(s *contract.Schedule) { s.EndsAt = &at })
	}
}

// converges stores a schedule and compares it.
func (w *world) converges(what string, change func(*contract.Schedule)) {
	w.t.Helper()
	s := contract.NewSchedule()
	s.Name, s.Spec, s.Type = "s", "@daily", "pdf"
	change(&s)
	_, err := w.Set(w.t.Context(), s)
	require.NoError(w.t, err, what)
	stored, err := w.Get(w.t.Context(), "s")
	require.NoError(w.t, err, what)
	require.Empty(w.t, schedule.Differences(&stored, &s), what)
}

func TestPayloadNullOfAScheduleStaysNull(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", func(s *contract.Schedule) { s.Payload = []byte("null") })
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 1)))
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE payload = 'null'`))
}
