package cron_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron/crontest"
)

// Each error names the expression, the field, the value, the rule and an example.
func TestErrorsSayWhatIsWrong(t *testing.T) {
	for expr, want := range map[string]string{
		"60 * * * *":  `minute "60": must be *, numbers from 0 to 59, for example "*/15"`,
		"0 24 * * *":  `hour "24": must be *, numbers from 0 to 23, for example "8-18"`,
		"0 0 0 * *":   `day of month "0": must be *, numbers from 1 to 31, L, LW or nW, for example "1,15,L"`,
		"0 0 32W * *": `day of month "32W": must be`,
		"0 0 ? * *":   `day of month "?": must be`,
		"0 0 * 13 *":  `month "13": must be *, numbers from 1 to 12 or names such as JAN, for example "JAN-MAR"`,
		"0 0 * ANJ *": `month "ANJ": must be`,
		"0 0 * * 8": `weekday "8": must be *, numbers from 0 to 7 or names such as SUN, d#n with n from 1 to 5, or dL, for example ` +
			`"MON-FRI"`,
		"0 0 * * L":              `weekday "L": must be`,
		"0 0 * * 1#6":            `weekday "1#6": must be`,
		"0 0 * * 1#":             `weekday "1#": must be`,
		"61 0 0 * * *":           `second "61": must be`,
		"5/15 * * * *":           `minute "5/15": a step needs * or a range; write 5-59/15, for example "*/15"`,
		"*/0 * * * *":            `minute "*/0": the step must be 1 to 59`,
		"*/x * * * *":            `minute "*/X": the step must be 1 to 59`,
		"0 22-2 * * *":           `hour "22-2": a range must not decrease; divide it as in 22-23,0-2, for example "8-18"`,
		"0 0,, * * *":            `hour "": must be`,
		"-1 * * * *":             `minute "-1": must be`,
		"* * * *":                `cron expression "* * * *": must have 5 fields`,
		"":                       `cron expression "": must have 5 fields`,
		"@every 5m":              `cron expression "@every 5m": must have 5 fields`,
		"@reboot":                `or be @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually, for example "30 2 * * *"`,
		"TZ=UTC 0 0 * * *":       `second "TZ=UTC": must be`,
		"0 0 31 2 *":             `day of month "31": no such day in month "2" with weekday "*", for example "0 0 L 2 *"`,
		"0 0 31 4,6,9,11 *":      `day of month "31": no such day in month`,
		"0 0 LW * */7":           `day of month "LW": no such day in month "*" with weekday "*/7"`,
		strings.Repeat("0", 257): `cron expression with 257 bytes: must have at most 256`,
	} {
		_, err := cron.Parse(expr)
		require.ErrorContains(t, err, want, expr)
	}
}

func TestEqualExpressionsAreEqualValues(t *testing.T) {
	for a, b := range map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 JAN *", "@monthly": "0 0 0 1 * *", "@weekly": "0 0 * * sun",
		"@Daily": "0 0 * * *", "@midnight": "0  0 * * *", "@hourly": "0 * * * *", "0 0 * * 7": "0 0 * * 0",
		"0 0 * * FRI-SUN": "0 0 * * 5-7", "0 0 * * MON#2": "0 0 * * 1#2", "0 0 * * 7L": "0 0 * * sunL", "0 0 l * *": "0 0 L * *",
	} {
		first, err := cron.Parse(a)
		require.NoError(t, err)
		second, err := cron.Parse(b)
		require.NoError(t, err)
		require.Equal(t, first, second, "%s and %s", a, b)
	}
}

func TestEveryNameOfAMonthOrWeekday(t *testing.T) {
	for day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() == 2026; day = day.AddDate(0, 0, 1) {
		e, err := cron.Parse("0 12 * " + day.Format("Jan Mon"))
		require.NoError(t, err)
		next, ok := e.Next(day, time.UTC)
		require.True(t, ok)
		require.Equal(t, day.Add(12*time.Hour), next)
	}
}

func TestSpecialDays(t *testing.T) {
	for expr, want := range map[string][]occasion{
		"0 0 L * *":      plain("2026-01-31 00:00:00", "2026-02-28 00:00:00"),
		"0 0 LW * *":     plain("2026-01-30 00:00:00", "2026-02-27 00:00:00"), // 31 January 2026 is a Saturday
		"0 0 1W * *":     plain("2026-01-01 00:00:00", "2026-02-02 00:00:00"), // 1 February is a Sunday
		"0 0 * * FRI#5":  plain("2026-01-30 00:00:00"),
		"0 0 * * 1L":     plain("2026-01-26 00:00:00", "2026-02-23 00:00:00"),
		"0 0 13 * FRI#2": plain("2026-01-09 00:00:00", "2026-01-13 00:00:00", "2026-02-13 00:00:00"),
	} {
		require.Equal(t, want, between(t, expr, "UTC", "2025-12-31 12:00", "2026-02-28 12:00"), expr)
	}
}

// An occasion between two occasions does not exist, and the order does not depend on
// where a search begins.
func FuzzExpression(f *testing.F) {
	for _, expr := range []string{"30 2 * * *", "*/7 0-3 L 2 MON#2", "59 59 23 31 12 5L", "@weekly", "0 0 15W,LW */2 *"} {
		f.Add(expr, int64(1_774_746_000), uint16(7))
	}
	zones := crontest.Zones()
	f.Fuzz(func(t *testing.T, expr string, from int64, pick uint16) {
		zone, err := time.LoadLocation(zones[int(pick)%len(zones)])
		require.NoError(t, err)
		e, err := cron.Parse(expr)
		if err != nil {
			return
		}
		at := time.Unix(from%(1<<33), 0)
		first, ok := e.Next(at, zone)
		require.True(t, ok)
		require.True(t, first.After(at))
		between := at.Add(time.Duration(rand.New(rand.NewPCG(uint64(from), 0)).Int64N(int64(min(first.Sub(at), 1<<55)))))
		again, ok := e.Next(between, zone)
		require.True(t, ok)
		require.Equal(t, first, again)
		_ = e.Note(first, zone).String()
	})
}

func BenchmarkNext(b *testing.B) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(b, err)
	for _, expr := range []string{"* * * * *", "30 2 * * *", "0 0 29 2 *"} {
		e, err := cron.Parse(expr)
		require.NoError(b, err)
		b.Run(expr, func(b *testing.B) {
			at := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				_, _ = e.Next(at, berlin)
			}
		})
	}
}
