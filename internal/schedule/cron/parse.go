package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// maxLength bounds an expression in bytes.
const maxLength = 256

// field describes one field of an expression.
type field struct {
	name      string
	low, high int
	names     string // of the values from low, three letters each
	others    string // other permitted values, for errors
	example   string
}

var fields = [...]field{
	{"second", 0, 59, "", "", "0,30"},
	{"minute", 0, 59, "", "", "*/15"},
	{"hour", 0, 23, "", "", "8-18"},
	{"day of month", 1, 31, "", ", L, LW or nW", "1,15,L"},
	{"month", 1, 12, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC", " or names such as JAN", "JAN-MAR"},
	{"weekday", 0, 7, "SUNMONTUEWEDTHUFRISAT", " or names such as SUN, d#n with n from 1 to 5, or dL", "MON-FRI"},
}

// The fields with values beside numbers.
const (
	dayOfMonth = 3
	weekday    = 5
)

var macros = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads an expression with five fields or, with seconds first, six. A field is a
// list of numbers, names, ranges and *, with steps. The day of month may also contain L
// (last day), LW (last working day) and nW (working day nearest to n), the weekday d#n
// (the n-th d of the month) and dL (the last d). Upper and lower case are equal. The
// error names the field, its value, the rule and an example. An expression that never
// matches, such as 30 February, is an error.
func Parse(text string) (Expression, error) {
	var e Expression
	if len(text) > maxLength {
		return e, fmt.Errorf("cron expression with %d bytes: must have at most %d, for example %q", len(text), maxLength, "30 2 * * *")
	}
	words := strings.Fields(strings.ToUpper(text))
	if len(words) == 1 && strings.HasPrefix(words[0], "@") {
		words = strings.Fields(macros[strings.ToLower(words[0])])
	}
	switch len(words) {
	case 5:
		words = append([]string{"0"}, words...)
	case 6:
	default:
		return e, fmt.Errorf(
			"cron expression %q: must have 5 fields (minute, hour, day, month, weekday), 6 with seconds first, or be @hourly, "+
				"@daily, @midnight, @weekly, @monthly, @yearly or @annually, for example %q",
			text,
			"30 2 * * *",
		)
	}
	for i, out := range []*set{&e.seconds, &e.minutes, &e.hours, &e.days, &e.months, &e.weekdays} {
		for item := range strings.SplitSeq(words[i], ",") {
			if i == dayOfMonth && e.dayItem(item) || i == weekday && e.weekdayItem(item) {
				continue
			}
			values, rule := fields[i].item(item)
			if rule != "" {
				return e, fmt.Errorf("cron expression %q, %s %q: %s, for example %q", text, fields[i].name, item, rule, fields[i].example)
			}
			*out |= values
		}
	}
	e.weekdays = (e.weekdays | e.weekdays>>7) & 127 // 7 is Sunday, too
	e.everyHour = strings.Contains(words[2], "*")
	e.anyDay, e.anyWeekday = strings.Contains(words[dayOfMonth], "*"), strings.Contains(words[weekday], "*")
	// The calendar repeats after 400 years.
	if _, ok := e.nextWall(0, 146_097*secondsPerDay); !ok {
		return e, fmt.Errorf("cron expression %q, day of month %q: no such day in month %q with weekday %q, for example %q",
			text, words[dayOfMonth], words[4], words[weekday], "0 0 L 2 *")
	}
	return e, nil
}

// item returns the values of an item without L, W and #, or the rule that it violates.
func (f *field) item(text string) (values set, rule string) {
	text, step, stepped := strings.Cut(text, "/")
	width, low, high := 1, f.low, f.high
	if stepped {
		n, err := strconv.ParseUint(step, 10, 8)
		if err != nil || n == 0 || int(n) > f.high {
			return 0, fmt.Sprintf("the step must be 1 to %d", f.high)
		}
		width = int(n)
	}
	if text != "*" {
		from, to, isRange := strings.Cut(text, "-")
		if !isRange {
			to = from
		}
		low, high = f.value(from), f.value(to)
		if f.high == 7 && high == 0 && low > 0 {
			high = 7 // FRI-SUN
		}
		switch {
		case low < 0 || high < 0:
			return 0, fmt.Sprintf("must be *, numbers from %d to %d%s", f.low, f.high, f.others)
		case low > high:
			return 0, "a range must not decrease; divide it as in 22-23,0-2"
		case stepped && !isRange:
			return 0, fmt.Sprintf("a step needs * or a range; write %d-%d/%d", low, f.high, width)
		}
	}
	for n := low; n <= high; n += width {
		values |= 1 << n
	}
	return values, ""
}

// value returns the value of a number or name, or -1.
func (f *field) value(text string) int {
	if i := strings.Index(f.names, text); len(text) == 3 && i >= 0 && i%3 == 0 {
		return f.low + i/3
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || int(n) < f.low || int(n) > f.high {
		return -1
	}
	return int(n)
}

// dayItem adds L, LW or nW, or returns false.
func (e *Expression) dayItem(text string) bool {
	day, nearest := strings.CutSuffix(text, "W")
	n := fields[dayOfMonth].value(day)
	switch {
	case day == "L" && nearest:
		e.nearest |= 1 << lastDay
	case day == "L":
		e.days |= 1 << lastDay
	case nearest && n > 0:
		e.nearest |= 1 << n
	default:
		return false
	}
	return true
}

// weekdayItem adds d#n or dL, or returns false.
func (e *Expression) weekdayItem(text string) bool {
	day, nth, found := strings.Cut(text, "#")
	if !found {
		day, found = strings.CutSuffix(text, "L")
		nth = "6" // dL is stored after d#5
	} else if nth > "5" {
		return false
	}
	d := fields[weekday].value(day)
	if !found || d < 0 || len(nth) != 1 || nth < "1" {
		return false
	}
	e.nth |= 1 << (7*int(nth[0]-'1') + d%7)
	return true
}
