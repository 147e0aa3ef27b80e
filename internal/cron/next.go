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

	// unbounded is an instant that no search reaches; minus it, the begin of time.
	unbounded = 1 << 60
)

// Next returns the first occasion strictly after an instant, in UTC. It returns false if
// there is none within 100 years.
func (e Expression) Next(after time.Time, zone *time.Location) (time.Time, bool) {
	t := after.Unix() + 1
	for limit := t + horizon; t < limit; {
		p := periodAt(t, zone)
		from := t + p.offset
		if !e.everyHour && t-p.start < longestShift {
			shown := p.shown(zone)
			if t == p.start && e.inGap(shown, from) {
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

// period is the time from start (inclusive) to end (exclusive) in which a zone has one
// offset from UTC, in seconds. The next period can have the same offset.
type period struct {
	start, end, offset int64
}

func periodAt(t int64, zone *time.Location) period {
	at := time.Unix(t, 0).In(zone)
	_, offset := at.Zone()
	p := period{-unbounded, unbounded, int64(offset)}
	start, end := at.ZoneBounds()
	if !start.IsZero() {
		p.start = start.Unix()
	}
	if !end.IsZero() {
		p.end = end.Unix()
	}
	if p.end <= t { // ZoneBounds counts 365 days also in leap years
		p.end = t + 60*60 - t%(60*60)
	}
	return p
}

// shown returns the end of the wall-clock times that the zone showed before the period.
func (p period) shown(zone *time.Location) int64 {
	latest := int64(-unbounded)
	for t := p.start; t > p.start-longestShift && t > -unbounded; {
		before := periodAt(t-1, zone)
		latest = max(latest, t+before.offset)
		t = before.start
	}
	return latest
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
	if t-p.start < longestShift {
		shown := p.shown(zone)
		switch {
		case t+p.offset < shown:
			return Repeated
		case t == p.start && !e.everyHour && e.inGap(shown, t+p.offset):
			return Moved
		}
	}
	if p.end-t < longestShift && t+p.offset >= p.end+periodAt(p.end, zone).offset {
		return First
	}
	return Plain
}
