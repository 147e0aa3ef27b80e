package cron

import "time"

const (
	// horizon is how far Next searches, in seconds. 29 February on a given weekday
	// occurs at least every 40 years.
	horizon = 100 * 366 * secondsPerDay

	// longestGap is the length in seconds of the longest gap whose times run at its end.
	longestGap = 3 * 60 * 60

	// longestShift exceeds every change of an offset, in seconds.
	longestShift = 26 * 60 * 60

	// unbounded is an instant that no search reaches.
	unbounded = 1 << 60
)

// Next returns the first occasion strictly after an instant, in UTC. It returns false if
// there is none within 100 years.
func (e Expression) Next(after time.Time, zone *time.Location) (time.Time, bool) {
	t := after.Unix() + 1
	for limit := t + horizon; t < limit; {
		p := periodAt(t, zone)
		from := t + p.offset
		if !e.everyHour {
			start, shown := shownBefore(t, zone)
			if t == start && e.inGap(shown, from) {
				return time.Unix(t, 0).UTC(), true
			}
			from = max(from, shown)
		}
		if wall, ok := e.nextWall(from, min(p.end, limit)+p.offset); ok {
			return time.Unix(wall-p.offset, 0).UTC(), true
		}
		t = p.end
	}
	return time.Time{}, false
}

// inGap reports whether a time in the gap [shown, from) runs at its end.
func (e Expression) inGap(shown, from int64) bool {
	if from-shown > longestGap {
		return false
	}
	_, ok := e.nextWall(shown, from)
	return ok
}

// period is a time before end (exclusive) in which a zone has one offset from UTC, in
// seconds. The next period can have the same offset.
type period struct {
	end, offset int64
}

// periodAt returns the period that contains t. It does not use the begin that ZoneBounds
// returns: after the last listed change of a zone that can be too early.
func periodAt(t int64, zone *time.Location) period {
	at := time.Unix(t, 0).In(zone)
	_, offset := at.Zone()
	p := period{unbounded, int64(offset)}
	if _, end := at.ZoneBounds(); !end.IsZero() {
		p.end = end.Unix()
	}
	if p.end <= t { // ZoneBounds counts 365 days also in leap years
		p.end = t + 60*60 - t%(60*60)
	}
	return p
}

// shownBefore returns the start of the period that contains t, and the end of the
// wall-clock times that the zone showed before it. A change that can no longer affect t
// does not count.
func shownBefore(t int64, zone *time.Location) (start, shown int64) {
	start, shown = -unbounded, -unbounded
	for p := periodAt(t-longestShift, zone); p.end <= t; p = periodAt(p.end, zone) {
		start, shown = p.end, max(shown, p.end+p.offset)
	}
	return start, shown
}

// Note says what a change of the wall clock does to an occasion.
type Note uint8

// The notes. Rule 1 or rule 2 of the package comment applies.
const (
	Plain    Note = iota // no change
	Moved                // a time in a gap runs at the end of the gap
	First                // the wall clock shows this time again later
	Repeated             // the wall clock showed this time before
)

// String returns the note as text for users; it is empty for Plain.
func (n Note) String() string {
	return [...]string{"", "moved to the end of a gap", "first of a repeated time", "repeated time"}[n]
}

// Note returns the note of an occasion that Next returned.
func (e Expression) Note(at time.Time, zone *time.Location) Note {
	t := at.Unix()
	p := periodAt(t, zone)
	switch start, shown := shownBefore(t, zone); {
	case t+p.offset < shown:
		return Repeated
	case t == start && !e.everyHour && e.inGap(shown, t+p.offset):
		return Moved
	}
	if p.end-t < longestShift && t+p.offset >= p.end+periodAt(p.end, zone).offset {
		return First
	}
	return Plain
}
