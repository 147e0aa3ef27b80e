package main

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron/crontest"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
)

// DST compares occasions near changes of the wall clock with the reference, in all time zones.
func DST(perZone int) (figure.Figures, error) {
	cases, wrong := 0, 0
	for _, name := range crontest.Zones() {
		zone, err := time.LoadLocation(name)
		if err != nil {
			return nil, err
		}
		for _, c := range crontest.Cases(zone, perZone, 2) {
			cases++
			e, err := cron.Parse(c.Expr)
			switch {
			case err != nil && len(c.Want) == 0: // the expression has no occasion
			case err != nil || c.Difference(func(at time.Time) (time.Time, bool) { return e.Next(at, zone) }) != "":
				wrong++
			}
		}
	}
	return figure.Figures{
		figure.AtLeast("dst_cases", float64(cases), float64(perZone*len(crontest.Zones()))), figure.None("dst_wrong", float64(wrong)),
	}, nil
}
