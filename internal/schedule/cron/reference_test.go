package cron_test

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // for a host without time zones

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron/crontest"
)

// tested are the zones that every run tests, beside a sample: without changes, with
// half an hour, without a day, with changes at midnight, and with Ramadan.
var tested = []string{
	"UTC", "Asia/Kathmandu", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia",
	"America/Sao_Paulo", "America/Havana", "Asia/Beirut", "Africa/Cairo", "Africa/Casablanca", "Antarctica/Casey", "Antarctica/Troll",
}

const (
	casesPerZone = 2000
	sample       = 40 // zones
)

func TestOccasionsEqualTheReference(t *testing.T) {
	seed := uint64(1)
	rng := rand.New(rand.NewPCG(seed, 0))
	names := append([]string{}, tested...)
	all := crontest.Zones()
	for _, i := range rng.Perm(len(all))[:sample] {
		names = append(names, all[i])
	}
	cases, occasions, wrong, perZone := 0, 0, 0, casesPerZone
	if testing.Short() {
		perZone /= 5
	}
	for _, name := range names {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		for _, c := range crontest.Cases(zone, perZone, seed) {
			cases++
			occasions += len(c.Want)
			if difference := compare(c); difference != "" {
				wrong++
				t.Errorf("%q in %s from %v: %s", c.Expr, name, c.From, difference)
			}
		}
		if wrong > 5 {
			break
		}
	}
	t.Logf("dst_cases=%d dst_wrong=%d (%d zones, %d occasions)", cases, wrong, len(names), occasions)
}

// compare returns the first difference between a case and Next.
func compare(c crontest.Case) string {
	e, err := cron.Parse(c.Expr)
	if err != nil {
		if len(c.Want) == 0 {
			return ""
		}
		return err.Error()
	}
	return c.Difference(func(at time.Time) (time.Time, bool) { return e.Next(at, c.Zone) })
}

// Portions of a long time join without a gap, also if one of them begins within a change.
func TestOccasionsOfAYearEqualTheReference(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		from := time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC)
		for _, c := range crontest.Long(zone, from, from.AddDate(1, 0, 0), 20, 1) {
			c.From = c.From.Add(-time.Nanosecond)
			require.Empty(t, compare(c), "%q in %s", c.Expr, name)
		}
	}
}
