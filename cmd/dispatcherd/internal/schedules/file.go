package schedules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// maxFile bounds a file of schedules in bytes.
const maxFile = 64 << 20

// columns are the keys of a schedule in a file: the columns that users set.
type columns struct {
	Kind        any `json:"kind,omitempty"          toml:"kind"`
	Spec        any `json:"spec,omitempty"          toml:"spec"`
	Every       any `json:"every,omitempty"         toml:"every"`
	TimeZone    any `json:"time_zone,omitempty"     toml:"time_zone"`
	Jitter      any `json:"jitter,omitempty"        toml:"jitter"`
	StartsAt    any `json:"starts_at,omitempty"     toml:"starts_at"`
	EndsAt      any `json:"ends_at,omitempty"       toml:"ends_at"`
	Once        any `json:"once,omitempty"          toml:"once"`
	Type        any `json:"type,omitempty"          toml:"type"`
	Payload     any `json:"payload,omitempty"       toml:"payload"`
	Priority    any `json:"priority,omitempty"      toml:"priority"`
	MaxAttempts any `json:"max_attempts,omitempty"  toml:"max_attempts"`
	TimeoutMS   any `json:"timeout_ms,omitempty"    toml:"timeout_ms"`
	ExpectedMS  any `json:"expected_ms,omitempty"   toml:"expected_ms"`
	Keys        any `json:"keys,omitempty"          toml:"keys"`
	Overlap     any `json:"overlap,omitempty"       toml:"overlap"`
	CatchUp     any `json:"catch_up,omitempty"      toml:"catch_up"`
	CatchUpMost any `json:"catch_up_most,omitempty" toml:"catch_up_most"`
	Paused      any `json:"paused,omitempty"        toml:"paused"`
}

// wanted is a schedule of a file.
type wanted struct {
	contract.Schedule

	keepPause bool // the file does not say whether the schedule is paused
}

// readFile reads the schedules of a file, or of standard input for "-", by name.
func (a commands) readFile(name string) ([]wanted, error) {
	text, err := a.ReadFile(name, maxFile)
	if err != nil {
		return nil, err
	}
	list, err := parse(text)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "file %s: %w", name, err)
	}
	return list, nil
}

// parse reads schedules: a table for each, with its name. The error contains all mistakes of
// one kind.
func parse(text []byte) ([]wanted, error) {
	var tables map[string]columns
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&tables); err != nil {
		return nil, explain(err)
	}
	var list []wanted
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		w, err := wantedOf(name, tables[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", name, err))
		}
		list = append(list, w)
	}
	return list, errors.Join(errs...)
}

// explain adds the lines to an error of the decoder.
func explain(err error) error {
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		errs := make([]error, len(unknown.Errors))
		for i := range unknown.Errors {
			line, _ := unknown.Errors[i].Position()
			key := unknown.Errors[i].Key()
			errs[i] = fmt.Errorf("line %d: unknown key %q: must be one of %s", line, key[len(key)-1], strings.Join(schedule.Columns(), ", "))
		}
		return errors.Join(errs...)
	}
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := bad.Position()
		return fmt.Errorf("line %d, column %d: %w; a schedule is a table with its name, for example [nightly]", line, column, err)
	}
	return err
}

// wantedOf returns the schedule that a table describes. A key that is absent means the default.
func wantedOf(name string, c columns) (wanted, error) {
	w := wanted{Schedule: contract.NewSchedule(), keepPause: c.Paused == nil}
	w.Name = name
	object, err := json.Marshal(c)
	if _, notJSON := errors.AsType[*json.UnsupportedValueError](err); notJSON {
		return w, errors.New("a value is inf or nan, which JSON does not have: write a number, or a text, for example \"inf\"")
	}
	if err != nil {
		return w, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil {
		return w, err
	}
	for _, column := range slices.Sorted(maps.Keys(values)) {
		if err := schedule.Assign(&w.Schedule, column, values[column]); err != nil {
			return w, err
		}
	}
	w.Schedule = w.WithDefaults()
	return w, schedule.Check(&w.Schedule)
}
