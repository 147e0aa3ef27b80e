package cli

import (
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

// wanted is a schedule of a file.
type wanted struct {
	contract.Schedule

	keepPause bool // the file does not say whether the schedule is paused
}

// readFile reads the schedules of a file, or of standard input for "-", by name.
func (a *Invocation) readFile(name string) ([]wanted, error) {
	text, err := a.ReadFile(name, maxFile)
	if err != nil {
		return nil, err
	}
	list, err := parse(text)
	if err != nil {
		return nil, exit.Usagef("file %s: %s", name, strings.ReplaceAll(err.Error(), "\n", "\nfile "+name+": "))
	}
	return list, nil
}

// parse reads schedules: a table for each, with its name, whose keys are columns. The error contains the first mistake of
// each schedule.
func parse(text []byte) ([]wanted, error) {
	var tables map[string]map[string]any
	err := toml.Unmarshal(text, &tables)
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := bad.Position()
		return nil, fmt.Errorf("line %d, column %d: %w; a schedule is a table with its name, for example [nightly]", line, column, err)
	}
	if err != nil {
		return nil, err
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

// wantedOf returns the schedule that a table describes. A key that is absent means the default.
func wantedOf(name string, columns map[string]any) (wanted, error) {
	w := wanted{Schedule: contract.NewSchedule(), keepPause: columns["paused"] == nil}
	w.Name = name
	for _, column := range slices.Sorted(maps.Keys(columns)) {
		value, err := json.Marshal(columns[column])
		if err != nil {
			return w, fmt.Errorf("%s is inf or nan, which JSON does not have: write a number, or a text, for example \"inf\"", column)
		}
		if err := schedule.Assign(&w.Schedule, column, value); err != nil {
			return w, err
		}
	}
	w.Schedule = w.WithDefaults()
	return w, schedule.Check(&w.Schedule)
}
