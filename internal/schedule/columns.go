package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// columns are the columns that users set, in the order of the table, with the rule for the JSON value and an example of each.
var columns = []struct{ name, rule, example string }{
	{"kind", "cron, interval, startup or startup-worker", `"cron"`}, {"spec", "a cron expression", `"30 2 * * *"`},
	{"every", "a duration from 1s to 87840h", `"10m"`}, {"time_zone", "a name of the time zone database", `"Europe/Berlin"`},
	{"jitter", "a duration from 0s to 24h", `"5m"`}, {"starts_at", "a time from 1970 to 2199", `"2030-01-31T00:00:00Z"`},
	{"ends_at", "a time from 1970 to 2199", `"2030-12-31T00:00:00Z"`}, {"once", "start, version or ever", `"start"`},
	{"type", "a text of 1 to 128 bytes", `"pdf"`}, {"payload", "JSON", examplePayload}, {"priority", "a whole number from 0 to 10", `5`},
	{"max_attempts", "a whole number from 1 to 32767", `5`}, {"timeout_ms", "a whole number from 1 to 2147483647", `60000`},
	{"expected_ms", "a whole number from 1 to 2147483647", `60000`},
	{"keys", "1 to 4 words KEY, KEY*COST or KEY*all", `"tenant:42 stripe*3"`},
	{"overlap", "skip, queue_one, queue_all, cancel_other or allow_all", `"skip"`}, {"catch_up", "a duration from 0s to 8784h", `"1h"`},
	{"catch_up_most", "a whole number from 0 to 10000", `1`}, {"paused", "true or false", `true`},
}

const examplePayload = `{"page": 1}`

// Columns returns the names of the columns that users set.
func Columns() []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// DescribeColumns returns a line for each column that users set, with its rule and an example.
func DescribeColumns() string {
	var b strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&b, "  %-13s  %s, such as %s\n", c.name, c.rule, c.example)
	}
	return b.String()
}

// Assign sets a column to a JSON value. It does not check the schedule; [Check] does.
func Assign(s *contract.Schedule, column string, value json.RawMessage) error {
	i := slices.Index(Columns(), column)
	if i < 0 {
		return fmt.Errorf("column %q: must be one of %s", column, strings.Join(Columns(), ", "))
	}
	object, err := json.Marshal(map[string]json.RawMessage{column: value})
	if err == nil {
		err = json.Unmarshal(object, s)
	}
	switch {
	case err == nil:
		return nil
	case column == "payload": // belongs to the users
		value = nil
	}
	return fmt.Errorf("%s: must be %s, for example %s", strings.TrimSpace(column+" "+string(value)), columns[i].rule, columns[i].example)
}

// AssignText is Assign for a value that is written without the quotation marks of JSON. An empty text means the default.
func AssignText(s *contract.Schedule, column, text string) error {
	if text == "" {
		return Assign(s, column, defaultOf(column))
	}
	value := json.RawMessage(text)
	i := slices.Index(Columns(), column)
	if isText := i >= 0 && columns[i].example[0] == '"'; isText || column != "payload" && !json.Valid(value) {
		value = quoted(text)
	}
	return Assign(s, column, value)
}

// defaultOf returns the default of a column. For columns without one it is the value that stands for none.
func defaultOf(column string) json.RawMessage {
	fresh := contract.NewSchedule()
	if value := values(&fresh)[column]; value != nil {
		return value
	}
	switch column {
	case "starts_at", "ends_at", "timeout_ms", "expected_ms":
		return json.RawMessage("null")
	case "every", "jitter":
		return quoted("0s")
	}
	return quoted("")
}

func quoted(text string) json.RawMessage {
	value, _ := json.Marshal(text) // of a string it never fails
	return value
}

// Change is a column in which two schedules differ. The values are JSON; empty = none.
type Change struct {
	Column string          `json:"column"`
	Old    json.RawMessage `json:"old,omitempty"`
	New    json.RawMessage `json:"new,omitempty"`
}

// Differences returns the columns in which two schedules differ, in the order of the table.
func Differences(before, after *contract.Schedule) (changes []Change) {
	b, a := values(before), values(after)
	for _, c := range columns {
		if !sameJSON(b[c.name], a[c.name]) {
			changes = append(changes, Change{c.name, b[c.name], a[c.name]})
		}
	}
	return changes
}

// values returns the columns of a schedule as JSON, without those that are empty. Times and durations are whole microseconds, as Postgres
// stores them.
func values(s *contract.Schedule) (values map[string]json.RawMessage) {
	v := *s
	for _, at := range []**time.Time{&v.StartsAt, &v.EndsAt} {
		if *at != nil {
			*at = new((*at).UTC().Truncate(time.Microsecond))
		}
	}
	for _, d := range []*contract.Duration{&v.Every, &v.Jitter, &v.CatchUp} {
		*d = contract.Duration(time.Duration(*d).Truncate(time.Microsecond))
	}
	object, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(object, &values)
	}
	if err != nil { // the payload is not JSON: Check rejects it
		return nil
	}
	for name, value := range values { // order-free: each is removed by itself
		if string(value) == `""` {
			delete(values, name)
		}
	}
	return values
}

// sameJSON compares two values as Postgres compares jsonb: without regard to white space, the order of members and how numbers are
// written.
func sameJSON(a, b json.RawMessage) bool {
	parse := func(text json.RawMessage) (v any) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		_ = d.Decode(&v) // no text is no value
		return normal(v)
	}
	return reflect.DeepEqual(parse(a), parse(b))
}

// normal gives equal numbers the same text. It changes v.
func normal(v any) any {
	switch x := v.(type) {
	case json.Number:
		if n, ok := new(big.Rat).SetString(string(x)); ok {
			return json.Number(n.RatString())
		}
	case []any:
		for i := range x {
			x[i] = normal(x[i])
		}
	case map[string]any:
		for name, value := range x { // order-free: each is changed by itself
			x[name] = normal(value)
		}
	}
	return v
}
