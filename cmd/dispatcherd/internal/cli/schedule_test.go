package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The notes mark a time in a gap and both times of a repeated hour.
func TestNextMarksChangesOfTheWallClock(t *testing.T) {
	v := contract.NewSchedule()
	v.Name, v.Kind, v.TimeZone, v.Type = "s", "cron", "Europe/Berlin", "pdf"
	next := func(spec string, after time.Time, n int) string {
		var out, errs bytes.Buffer
		a := &Invocation{Console: Console{Out: &out, Err: &errs}}
		v.Spec = spec
		v.ReadAt = after
		require.NoError(t, a.showNext(&v, n))
		return out.String() + errs.String()
	}
	require.Equal(t, `UTC                       LOCAL                         RUN AT                    NOTE
2026-03-28T01:30:00.000Z  Sat 2026-03-28 02:30:00 CET   2026-03-28T01:30:00.000Z  -
2026-03-29T01:00:00.000Z  Sun 2026-03-29 03:00:00 CEST  2026-03-29T01:00:00.000Z  moved to the end of a gap
`, next("30 2 * * *", time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC), 2))
	require.Equal(t, `UTC                       LOCAL                         RUN AT                    NOTE
2026-10-25T00:00:00.000Z  Sun 2026-10-25 02:00:00 CEST  2026-10-25T00:00:00.000Z  first of a repeated time
2026-10-25T01:00:00.000Z  Sun 2026-10-25 02:00:00 CET   2026-10-25T01:00:00.000Z  repeated time
`, next("0 * * * *", time.Date(2026, 10, 24, 23, 30, 0, 0, time.UTC), 2))
	v.Paused = true
	require.Contains(t, next("0 * * * *", time.Now(), 1), "The schedule does not run now: paused.")
}

// The database clock was ahead and was set back. The occasions up to the high-water mark are handled.
func TestNextBeginsAfterTheHighWaterMark(t *testing.T) {
	now := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	handled := now.AddDate(1, 0, 0)
	v := contract.NewSchedule()
	v.Name, v.Kind, v.Spec, v.Type, v.Handled, v.ReadAt = "s", "cron", "0 0 * * *", "pdf", &handled, now
	next := func() string {
		var out, errs bytes.Buffer
		a := &Invocation{Console: Console{Out: &out, Err: &errs}}
		require.NoError(t, a.showNext(&v, 1))
		return out.String() + errs.String()
	}
	require.Contains(t, next(), "\n2027-03-29T00:00:00.000Z ")
	require.Contains(t,
		next(),
		"The schedule does not run now: the database clock was set back, and all occasions up to 2027-03-28T00:00:00.000Z are "+
			"handled; remove and create",
	)
	handled = now.Add(skew)
	require.NotContains(t, next(), "does not run now", "the controller does not know the clock of the database exactly")
}
