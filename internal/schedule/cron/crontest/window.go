package crontest

import (
	"math/rand/v2"
	"time"
)

const (
	before = 50 * time.Hour // of a window, before the change of the wall clock
	after  = 30 * time.Hour // of a window, after the change

	// longestGap is the length of the longest gap whose times run at its end.
	longestGap = 3 * time.Hour
)

// moment is one step of a window.
type moment struct {
	at       time.Time // in the zone
	wall     time.Time // what the clock shows, as if it were UTC
	repeated bool      // the clock showed this time before
	skipped  []time.Time

	hour, minute, second int // of wall
}

// window contains the moments around a change of the wall clock.
type window struct {
	change  time.Time
	moments []moment
}

func wallClock(at time.Time) time.Time {
	year, month, day := at.Date()
	hour, minute, second := at.Clock()
	return time.Date(year, month, day, hour, minute, second, 0, time.UTC)
}

// newWindow walks through a window in steps.
func newWindow(change time.Time, step time.Duration, from, to time.Time) window {
	w := window{change: change}
	shown := map[time.Time]bool{}
	for at := from; at.Before(to); at = at.Add(step) {
		m := moment{at: at, wall: wallClock(at)}
		m.hour, m.minute, m.second = m.wall.Clock()
		if len(w.moments) > 0 {
			last := w.moments[len(w.moments)-1].wall.Add(step)
			if gap := m.wall.Sub(last); gap > 0 && gap <= longestGap {
				for t := last; t.Before(m.wall); t = t.Add(step) {
					if !shown[t] {
						m.skipped = append(m.skipped, t)
					}
					shown[t] = true
				}
			}
		}
		m.repeated = shown[m.wall]
		shown[m.wall] = true
		w.moments = append(w.moments, m)
	}
	return w
}

// changes returns the instants between 1973 and 2040 at which the offset of the zone
// changes. Before 1973 offsets have seconds.
func changes(zone *time.Location) (list []time.Time) {
	at := time.Date(1973, 1, 1, 0, 0, 0, 0, time.UTC).In(zone)
	for at.Year() < 2040 {
		_, end := at.ZoneBounds()
		if end.IsZero() {
			break
		}
		if !end.After(at) { // 31 December of a leap year
			end = at.Add(24 * time.Hour)
		}
		_, offset := at.Zone()
		if _, next := end.Zone(); next != offset {
			list = append(list, end.In(zone))
		}
		at = end.In(zone)
	}
	return list
}

// shift returns by how much the wall clock changes. A window must contain all times that the
// change repeats.
func shift(change time.Time) time.Duration {
	_, was := change.Add(-time.Second).Zone()
	_, is := change.Zone()
	return time.Duration(max(was-is, is-was)) * time.Second
}

// randomChange returns a change of the zone, or, without changes, a random midnight.
func randomChange(rng *rand.Rand, list []time.Time, zone *time.Location) time.Time {
	if len(list) == 0 {
		return time.Unix(0, 0).AddDate(20, 0, rng.IntN(40*365)).UTC().Truncate(24 * time.Hour).In(zone)
	}
	return list[rng.IntN(len(list))]
}
