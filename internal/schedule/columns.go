package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// columns are the columns that users set, in the order of the table, with an example of each.
var columns = []struct{ name, example string }{
	{"kind", `"cron"`}, {"spec", `"30 2 * * *"`}, {"every", `"10m"`}, {"time_zone", `"Europe/Berlin"`}, {"jitter", `"5m"`},
	{"starts_at", `"2030-01-31T00:00:00Z"`}, {"ends_at", `"2030-12-31T00:00:00Z"`}, {"once", `"start"`}, {"type", `"pdf"`}, {"payload", `{"page": 1}`},
	{"priority", `5`}, {"max_attempts", `5`}, {"timeout_ms", `60000`}, {"overlap", `"skip"`}, {"catch_up", `"1h"`}, {"catch_up_most", `1`}, {"paused", `true`},
}

// Columns returns the names of the columns that users set.
func Columns() []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// Assign sets a column to a JSON value. It does not check the schedule; [Check] does.
func Assign(s *contract.Schedule, column string, value json.RawMessage) error {
	example := ""
	for _, c := range columns {
		if c.name == column {
			example = c.example
		}
	}
	if example == "" {
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
		return fmt.Errorf("%s: must be JSON, for example %s", column, example)
	}
	return fmt.Errorf("%s %s: must have the form of %s", column, value, example)
}

// AssignText is Assign for a value that is written without the quotation marks of JSON. An empty
// text means no value.
func AssignText(s *contract.Schedule, column, text string) error {
	value := json.RawMessage(text)
	switch column {
	case "payload", "priority", "max_attempts", "timeout_ms", "catch_up_most", "paused":
	case "starts_at", "ends_at":
		if text != "" {
			value = quoted(text)
		}
	default:
		value = quoted(text)
	}
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	if !json.Valid(value) && column != "payload" {
		value = quoted(text)
	}
	return Assign(s, column, value)
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

// values returns the columns of a schedule as JSON, without those that are empty.
func values(s *contract.Schedule) (values map[string]json.RawMessage) {
	v := *s
	for _, at := range []**time.Time{&v.StartsAt, &v.EndsAt} {
		if *at != nil {
			utc := (*at).UTC()
			*at = &utc
		}
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

// sameJSON compares two values without regard to white space and the order of members.
func sameJSON(a, b json.RawMessage) bool {
	parse := func(text json.RawMessage) (v any) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		_ = d.Decode(&v) // no text is no value
		return v
	}
	return reflect.DeepEqual(parse(a), parse(b))
}
