package cron

import (
	"math/bits"
	"time"
)

// Expression is a parsed cron expression. Equal expressions are equal values.
type Expression struct {
	seconds, minutes, hours, days, months, weekdays set

	nearest set // n of nW: the working day (Monday to Friday) nearest to day n
	nth     set // 7·(n-1)+d of d#n, 35+d of dL

	everyHour          bool // the hour field has a *: rule 1 applies
	anyDay, anyWeekday bool // the field has a *
}

// set contains numbers below 64.
type set uint64

func (s set) has(n int) bool { return s>>n&1 == 1 }

// next returns the smallest element that is at least n, or 64.
func (s set) next(n int) int { return bits.TrailingZeros64(uint64(s &^ (1<<n - 1))) }

const (
	secondsPerDay = 24 * 60 * 60
	lastDay       = 32 // L, or LW, in a set of days
)

// nextWall returns the first matching wall-clock time in [from, end). A wall-clock time
// is the Unix time at which a clock in UTC shows it.
func (e Expression) nextWall(from, end int64) (int64, bool) {
	at := time.Unix(from, 0).UTC()
	year, month, day := at.Date()
	second := at.Hour()*3600 + at.Minute()*60 + at.Second()
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	for first.Unix() < end {
		following := first.AddDate(0, 1, 0)
		var days set
		if e.months.has(int(first.Month())) {
			days = e.daysOf(int(first.Weekday()), following.AddDate(0, 0, -1).Day())
		}
		for d := days.next(day); d < 64; d = days.next(d + 1) {
			if d > day {
				second = 0
			}
			if s := e.timeOfDay(second); s < secondsPerDay {
				wall := first.Unix() + int64(d-1)*secondsPerDay + int64(s)
				return wall, wall < end
			}
		}
		first, day, second = following, 1, 0
	}
	return 0, false
}

// timeOfDay returns the first matching second of the day that is at least from, or
// secondsPerDay.
func (e Expression) timeOfDay(from int) int {
	hour, minute, second := from/3600, from/60%60, from%60
	if e.hours.has(hour) {
		if e.minutes.has(minute) && e.seconds.next(second) < 64 {
			return hour*3600 + minute*60 + e.seconds.next(second)
		}
		if minute = e.minutes.next(minute + 1); minute < 64 {
			return hour*3600 + minute*60 + e.seconds.next(0)
		}
	}
	if hour = e.hours.next(hour + 1); hour < 64 {
		return hour*3600 + e.minutes.next(0)*60 + e.seconds.next(0)
	}
	return secondsPerDay
}

// daysOf returns the matching days of a month that begins with the given weekday
// (Sunday is 0) and has the given number of days.
func (e Expression) daysOf(begin, length int) set {
	all := set(1)<<(length+1) - 2
	byDay, byWeekday := e.days&all, set(0)
	if e.days.has(lastDay) {
		byDay |= 1 << length
	}
	if e.nearest.has(lastDay) {
		byDay |= 1 << workday(length, begin, length)
	}
	for n := e.nearest.next(1); n <= length; n = e.nearest.next(n + 1) {
		byDay |= 1 << workday(n, begin, length)
	}
	for d := 1; d <= length; d++ {
		weekday := (begin + d - 1) % 7
		if e.weekdays.has(weekday) || e.nth.has((d-1)/7*7+weekday) || d > length-7 && e.nth.has(35+weekday) {
			byWeekday |= 1 << d
		}
	}
	if e.anyDay || e.anyWeekday {
		return byDay & byWeekday
	}
	return byDay | byWeekday
}

// workday returns the day from Monday to Friday of the same month that is nearest to
// day n.
func workday(n, begin, length int) int {
	shift := [7]int{time.Sunday: 1, time.Saturday: -1}[(begin+n-1)%7]
	if n+shift < 1 || n+shift > length {
		shift *= -2
	}
	return n + shift
}
