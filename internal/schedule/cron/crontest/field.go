package crontest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is the text of a field and what it matches.
type field struct {
	text   string
	star   bool
	values [64]bool
	rules  []func(date time.Time) bool
}

// matches reports whether the field matches a value of a date.
func (f *field) matches(value int, date time.Time) bool {
	return f.values[value] || slices.ContainsFunc(f.rules, func(rule func(time.Time) bool) bool { return rule(date) })
}

func (f *field) write(text string) {
	f.text = strings.TrimPrefix(f.text+","+text, ",")
	f.star = f.star || strings.Contains(text, "*")
}

// add adds the values low, low+step, … up to high.
func (f *field) add(text string, low, high, step int) {
	f.write(text)
	for v := low; v <= high; v += step {
		f.values[v] = true
	}
}

func (f *field) addRule(text string, rule func(date time.Time) bool) {
	f.write(text)
	f.rules = append(f.rules, rule)
}

// generator describes the values of a kind of field.
type generator struct {
	low, high int
	steps     []int
	names     []string
}

func (g generator) name(rng *rand.Rand, value int) string {
	if len(g.names) == 0 || rng.IntN(2) == 0 {
		return strconv.Itoa(value)
	}
	name := g.names[(value-g.low)%len(g.names)]
	if rng.IntN(2) == 0 {
		return strings.ToUpper(name)
	}
	return name
}

// item adds *, a number, or a range, with or without a step. Numbers are near the
// given value.
func (g generator) item(rng *rand.Rand, f *field, near int) {
	pick := func() int { return min(max(near+rng.IntN(7)-3, g.low), g.high) }
	step := g.steps[rng.IntN(len(g.steps))]
	low, high := pick(), pick()
	low, high = min(low, high), max(low, high)
	switch rng.IntN(5) {
	case 0:
		f.add(fmt.Sprintf("*/%d", step), g.low, g.high, step)
	case 1:
		f.add(g.name(rng, low)+"-"+g.name(rng, high), low, high, 1)
	case 2:
		f.add(fmt.Sprintf("%d-%d/%d", low, high, step), low, high, step)
	default:
		f.add(g.name(rng, low), low, low, 1)
	}
}

func (g generator) field(rng *rand.Rand, near, starOf10 int) *field {
	f := &field{}
	if rng.IntN(10) < starOf10 {
		f.add("*", g.low, g.high, 1)
		return f
	}
	for range 1 + rng.IntN(2) {
		g.item(rng, f, near)
	}
	return f
}

var (
	seconds  = generator{0, 59, []int{1, 7, 15, 20, 30}, nil}
	minutes  = seconds
	hours    = generator{0, 23, []int{1, 2, 3, 5, 6}, nil}
	days     = generator{1, 31, []int{2, 3, 7, 10}, nil}
	months   = generator{1, 12, []int{2, 3}, []string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}}
	weekdays = generator{0, 6, []int{2, 3, 4}, []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}}
)

// dayRule adds L, LW or nW.
func dayRule(rng *rand.Rand, f *field, near int) {
	n := min(max(near+rng.IntN(3)-1, 1), 31)
	switch rng.IntN(3) {
	case 0:
		f.addRule("L", func(date time.Time) bool { return date.AddDate(0, 0, 1).Day() == 1 })
	case 1:
		f.addRule("LW", func(date time.Time) bool {
			for rest := date.AddDate(0, 0, 1); rest.Month() == date.Month(); rest = rest.AddDate(0, 0, 1) {
				if working(rest) {
					return false
				}
			}
			return working(date)
		})
	default:
		f.addRule(fmt.Sprintf("%dW", n), func(date time.Time) bool { return date.Equal(nearestWorkingDay(date, n)) })
	}
}

func working(date time.Time) bool {
	return date.Weekday() != time.Saturday && date.Weekday() != time.Sunday
}

// nearestWorkingDay returns the working day nearest to day n of the month of a date. It
// returns the zero time if the month has no day n.
func nearestWorkingDay(date time.Time, n int) time.Time {
	day := date.AddDate(0, 0, n-date.Day())
	if day.Month() != date.Month() {
		return time.Time{}
	}
	for _, distance := range []int{0, -1, 1, -2, 2} {
		if d := day.AddDate(0, 0, distance); d.Month() == day.Month() && working(d) {
			return d
		}
	}
	return time.Time{}
}

// weekdayRule adds d#n or dL.
func weekdayRule(rng *rand.Rand, f *field, date time.Time) {
	day := (int(date.Weekday()) + rng.IntN(2)) % 7
	n := rng.IntN(6)
	if n == 0 {
		f.addRule(weekdays.name(rng, day)+"L", func(date time.Time) bool {
			return int(date.Weekday()) == day && date.AddDate(0, 0, 7).Month() != date.Month()
		})
		return
	}
	f.addRule(fmt.Sprintf("%s#%d", weekdays.name(rng, day), n), func(date time.Time) bool {
		return int(date.Weekday()) == day && date.AddDate(0, 0, -7*n).Month() != date.Month() &&
			date.AddDate(0, 0, -7*(n-1)).Month() == date.Month()
	})
}
