package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

const scheduleApplyLong = `Makes the schedules equal to those of a TOML file. Prints the differences first. The file has a
table [NAME] for each schedule, with its columns. A column that is left out gets the default,
except "paused": if it is left out, a paused schedule stays paused. Each edit takes effect at
once. After an error or an interruption, repeat the command.`

// applyFlags are the flags of `schedule apply`.
type applyFlags struct{ prune, dryRun, yes bool }

func (a *Invocation) scheduleApplyCommand() *cobra.Command {
	var f applyFlags
	cmd := New("apply FILE | -", "Make the schedules equal to those of a file",
		"  dispatcherd schedule apply schedules.toml --dry-run\n  dispatcherd schedule apply schedules.toml --prune --yes", scheduleApplyLong)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := a.readFile(args[0])
		if err != nil {
			return err
		}
		return a.applySchedules(cmd.Context(), a.client.Schedules(), list, f)
	}
	cmd.Flags().BoolVar(&f.prune, "prune", false, "also remove other schedules")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only print the differences")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "remove without question")
	return cmd
}

// The kinds of edits.
const (
	create = "create"
	change = "change"
	remove = "remove"
)

// edit is a schedule to create, to change or to remove.
type edit struct {
	Edit    string            `json:"edit"`
	Name    string            `json:"name"`
	Changes []schedule.Change `json:"changes,omitempty"` // of a new schedule: what differs from the defaults

	wanted contract.Schedule // with the version that was read
}

// edits make the table equal to a file.
type edits []edit

// String counts the schedules that were created, changed and removed.
func (e edits) String() string {
	counts := map[string]int{}
	for i := range e {
		counts[e[i].Edit]++
	}
	return fmt.Sprintf("%d created, %d changed, %d removed", counts[create], counts[change], counts[remove])
}

// rows are the lines of the table: one for each column, and one for each removed schedule.
func (e edits) rows() (rows [][]any) {
	for _, d := range e {
		for _, c := range d.Changes {
			rows = append(rows, []any{d.Edit, d.Name, c.Column, string(c.Old), string(c.New)})
		}
		if d.Edit == remove {
			rows = append(rows, []any{d.Edit, d.Name, "", "", ""})
		}
	}
	return rows
}

// applySchedules prints the edits and makes them.
func (a *Invocation) applySchedules(ctx context.Context, s client.Schedules, list []wanted, f applyFlags) error {
	all, removed, err := compare(ctx, s, list, f.prune)
	if err != nil {
		return err
	}
	if a.JSON() {
		err = PrintRows(a, "differences", all, "", nil)
	} else {
		err = writeTable(a.Out, "edit, schedule, column, old, new", all.rows())
	}
	if err != nil {
		return err
	}
	switch {
	case len(all) == 0:
		a.Say("There is no difference.")
		return nil
	case f.dryRun:
		return nil
	case removed > 0 && !f.yes:
		if err := a.Agree(ctx, "remove "+Counted(removed, "schedule"), "--yes"); err != nil {
			return err
		}
	}
	made, err := all.execute(ctx, s)
	if err != nil {
		a.Say("Before the error: %s. Repeat the command to make the edits that are left.", all[:made])
		return err
	}
	a.Say("%s", all)
	return nil
}

// compare returns the differences between the table and a file. Removals are last, so that an error does not remove what another
// name replaces.
func compare(ctx context.Context, s client.Schedules, list []wanted, prune bool) (all edits, removed int, err error) {
	inFile := map[string]bool{}
	for i := range list {
		e := edit{Edit: change, Name: list[i].Name, wanted: list[i].Schedule}
		inFile[e.Name] = true
		old, err := step(ctx, s.Get, e.Name)
		switch {
		case IsMissing(err):
			e.Edit, old = create, contract.NewSchedule()
			old.Version = contract.NoVersion
		case err != nil:
			return nil, 0, err
		case list[i].keepPause:
			e.wanted.Paused = old.Paused
		}
		e.Changes, e.wanted.Version = schedule.Differences(&old, &e.wanted), old.Version
		if len(e.Changes) > 0 || e.Edit == create {
			all = append(all, e)
		}
	}
	for q := (client.Names{Query: client.Query{Limit: LargestPage}}); prune; prune = q.Cursor != "" {
		page, err := step(ctx, s.List, q)
		if err != nil {
			return nil, 0, err
		}
		for _, v := range page.Items {
			if !inFile[v.Name] {
				all = append(all, edit{Edit: remove, Name: v.Name, wanted: v})
				removed++
			}
		}
		q.Cursor = page.Next
	}
	return all, removed, nil
}

// step calls f with a time limit of its own, because there may be any number of steps.
func step[A, T any](ctx context.Context, f func(context.Context, A) (T, error), of A) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return f(ctx, of)
}

// execute makes the edits one by one, so that no other session waits for more than one of them, and a schedule that is edited holds
// up no ticks of the others.
func (e edits) execute(ctx context.Context, s client.Schedules) (made int, err error) {
	for i := range e {
		if _, err := step(ctx, e[i].execute, s); err != nil {
			return i, err
		}
	}
	return len(e), nil
}

// execute makes the edit unless the schedule was edited after the comparison.
func (e *edit) execute(ctx context.Context, s client.Schedules) (created bool, err error) {
	if e.Edit == remove {
		return false, s.RemoveVersion(ctx, e.Name, e.wanted.Version)
	}
	return s.Set(ctx, e.wanted)
}

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
	if err := unmarshalTOML(text, &tables); err != nil {
		return nil, fmt.Errorf("%w; a schedule is a table with its name, for example [nightly]", err)
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
