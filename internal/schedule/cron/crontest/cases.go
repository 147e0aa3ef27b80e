package crontest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Case is an expression with its occasions in (From, To).
type Case struct {
	Expr     string
	From, To time.Time
	Zone     *time.Location
	Want     []time.Time // in UTC, in order
}

// Difference returns the first difference between a case and a function that returns the first
// occasion after an instant.
func (c *Case) Difference(following func(time.Time) (time.Time, bool)) string {
	at := c.From
	for i := 0; ; i++ {
		next, ok := following(at)
		ended := !ok || !next.Before(c.To)
		switch {
		case ended && i == len(c.Want):
			return ""
		case i == len(c.Want):
			return "unexpected " + next.String()
		case ended || !next.Equal(c.Want[i]):
			return "got " + next.String() + ", want " + c.Want[i].String()
		}
		at = next
	}
}

// expression is a generated expression.
type expression struct {
	text                                      string
	second, minute, hour, day, month, weekday *field
}

// newExpression generates an expression that often matches near the given time.
func newExpression(rng *rand.Rand, near time.Time, withSeconds bool) *expression {
	e := &expression{
		second: &field{},
		minute: minutes.field(rng, near.Minute(), 1), hour: hours.field(rng, near.Hour(), 2),
		day: &field{}, month: months.field(rng, int(near.Month()), 7), weekday: &field{},
	}
	if withSeconds {
		e.second = seconds.field(rng, near.Second(), 1)
	} else {
		e.second.values[0] = true
	}
	if rng.IntN(8) == 0 {
		dayRule(rng, e.day, near.Day())
	} else {
		e.day = days.field(rng, near.Day(), 6)
	}
	if rng.IntN(8) == 0 {
		weekdayRule(rng, e.weekday, near)
	} else {
		e.weekday = weekdays.field(rng, int(near.Weekday()), 6)
	}
	e.text = strings.TrimSpace(
		strings.Join([]string{e.second.text, e.minute.text, e.hour.text, e.day.text, e.month.text, e.weekday.text}, " "),
	)
	return e
}

// matches reports whether the expression matches what a clock shows.
func (e *expression) matches(wall time.Time) bool {
	hour, minute, second := wall.Clock()
	return e.minute.values[minute] && e.hour.values[hour] && e.second.values[second] && e.matchesDate(wall)
}

func (e *expression) matchesDate(wall time.Time) bool {
	date := wall.Truncate(24 * time.Hour)
	if !e.month.matches(int(date.Month()), date) {
		return false
	}
	day, weekday := e.day.matches(date.Day(), date), e.weekday.matches(int(date.Weekday()), date)
	if e.day.star || e.weekday.star {
		return day && weekday
	}
	return day || weekday
}

// occasions returns the instants of a window after from.
func (e *expression) occasions(w window, from time.Time) (list []time.Time) {
	for i := range w.moments {
		m := &w.moments[i]
		run := e.minute.values[m.minute] && e.hour.values[m.hour] && e.second.values[m.second]
		if !e.hour.star {
			run = run && !m.repeated
		}
		run = run && e.matchesDate(m.wall)
		if !e.hour.star {
			run = run || slices.ContainsFunc(m.skipped, e.matches)
		}
		if run && m.at.After(from) {
			list = append(list, m.at.UTC())
		}
	}
	return list
}

// perWindow is how many cases use a window.
const perWindow = 100

// Cases generates n cases in a zone, most of them near changes of its wall clock. One
// in twenty has seconds.
func Cases(zone *time.Location, n int, seed uint64) (list []Case) {
	rng := rand.New(rand.NewPCG(seed, 0))
	all := changes(zone)
	for len(list) < n {
		change := randomChange(rng, all, zone)
		seconds := len(list)/perWindow%20 == 19
		w := newWindow(change, time.Minute, change.Add(-before), change.Add(after))
		if seconds {
			w = newWindow(change, time.Second, change.Add(-max(4*time.Hour, shift(change))), change.Add(4*time.Hour))
		}
		for range min(perWindow, n-len(list)) {
			list = append(list, w.newCase(rng, zone, seconds))
		}
	}
	return list
}

// newCase generates a case that begins in the last third before the change, or later.
func (w window) newCase(rng *rand.Rand, zone *time.Location, seconds bool) Case {
	near := wallClock(w.change.Add(time.Duration(rng.IntN(240)-150) * time.Minute))
	e := newExpression(rng, near, seconds)
	length := len(w.moments)
	c := Case{
		Expr: e.text, Zone: zone,
		From: w.moments[length*2/5+rng.IntN(length/3)].at.UTC(),
		To:   w.moments[length-1].at.UTC().Add(time.Nanosecond),
	}
	c.Want = e.occasions(w, c.From)
	return c
}
