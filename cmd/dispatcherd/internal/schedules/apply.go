package schedules

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

const applyLong = `Makes the schedules equal to those of a TOML file. Prints the differences first. The file has a table [NAME] for each
schedule, whose keys are columns. An absent key means the default; without "paused", a pause remains. Each edit
takes effect at once. After an error or an interruption, repeat the command.`

// applyFlags are the flags of `schedule apply`.
type applyFlags struct{ prune, dryRun, yes bool }

func (a commands) applyCommand() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use: "apply FILE | -", SuggestFor: []string{"import", "load"}, Short: "Make the schedules equal to those of a file", Long: applyLong,
		Example: "  dispatcherd schedule apply schedules.toml --dry-run\n  dispatcherd schedule apply schedules.toml --prune --yes",
		Args:    settings.Arguments(1, 1, "one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.readFile(args[0])
			if err != nil {
				return err
			}
			return a.API.With(func(c *client.Client) error { return a.apply(cmd.Context(), c.Schedules(), list, f) })
		},
	}
	cmd.Flags().BoolVar(&f.prune, "prune", false, "also remove other schedules")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only print the differences")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "remove without question")
	return cmd
}

// edit is a schedule to create, to change or to remove.
type edit struct {
	Name    string            `json:"name"`
	Changes []schedule.Change `json:"changes,omitempty"` // of a new schedule: what differs from the defaults

	wanted  *contract.Schedule // with the version that was read; nil = remove
	version int64              // of a schedule to remove
}

// differences are the edits that make the table equal to a file.
type differences struct {
	Created []edit `json:"created"`
	Changed []edit `json:"changed"`
	Removed []edit `json:"removed"`
}

// apply prints the differences and makes the edits, each for the version of the schedule that was compared.
func (a commands) apply(ctx context.Context, s client.Schedules, list []wanted, f applyFlags) error {
	d, err := compare(ctx, s, list, f.prune)
	if err != nil {
		return err
	}
	if err := a.PrintRows("differences", d, "edit, schedule, column, old, new", d.rows()); err != nil {
		return err
	}
	if len(d.Created)+len(d.Changed)+len(d.Removed) == 0 {
		a.Say("There is no difference.")
		return nil
	}
	if f.dryRun {
		return nil
	}
	if n := len(d.Removed); n > 0 && !f.yes {
		if err := a.Agree("remove "+console.Counted(int64(n), "schedule"), "--yes"); err != nil {
			return err
		}
	}
	made, err := d.execute(ctx, s)
	if err != nil {
		a.Say("Before the error: %s. Repeat the command to make the edits that are left.", made)
		return err
	}
	a.Say("%s", made)
	return nil
}

// compare returns the differences between the table and a file, by name.
func compare(ctx context.Context, s client.Schedules, list []wanted, prune bool) (differences, error) {
	d := differences{[]edit{}, []edit{}, []edit{}}
	existing, err := readAll(ctx, s, list)
	if err != nil {
		return d, err
	}
	fresh := contract.NewSchedule()
	for i := range list {
		w := list[i].Schedule
		old, found := existing[w.Name]
		delete(existing, w.Name)
		if !found {
			w.Version = contract.NoVersion
			d.Created = append(d.Created, edit{Name: w.Name, Changes: schedule.Differences(&fresh, &w), wanted: &w})
			continue
		}
		if list[i].keepPause {
			w.Paused = old.Paused
		}
		if changes := schedule.Differences(&old, &w); len(changes) > 0 {
			w.Version = old.Version
			d.Changed = append(d.Changed, edit{Name: w.Name, Changes: changes, wanted: &w})
		}
	}
	if prune {
		for _, name := range slices.Sorted(maps.Keys(existing)) {
			d.Removed = append(d.Removed, edit{Name: name, version: existing[name].Version})
		}
	}
	return d, nil
}

// step calls f with a time limit of its own, because there may be any number of steps.
func step[A, T any](ctx context.Context, f func(context.Context, A) (T, error), of A) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, ask.Patience)
	defer cancel()
	return f(ctx, of)
}

// readAll reads all schedules, page by page. The pages contain no payloads, so those of the file are read again.
func readAll(ctx context.Context, s client.Schedules, list []wanted) (map[string]contract.Schedule, error) {
	inFile := map[string]bool{}
	for i := range list {
		inFile[list[i].Name] = true
	}
	all := map[string]contract.Schedule{}
	for q := (client.Names{Query: client.Query{Limit: settings.LargestPage}}); ; {
		page, err := step(ctx, s.List, q)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Items {
			if inFile[v.Name] {
				v, err = step(ctx, s.Get, v.Name)
			}
			switch {
			case err == nil:
				all[v.Name] = v
			case !ask.IsMissing(err): // it may have been deleted meanwhile
				return nil, err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return all, nil
		}
	}
}

// edits counts the created, changed and removed schedules.
type edits [3]int

func (e edits) String() string {
	return fmt.Sprintf("%d created, %d changed, %d removed", e[0], e[1], e[2])
}

// execute makes the edits one by one, so that no other session waits for more than one of them, and a schedule that is
// edited holds up no ticks of the others. Removals are last, so that an error does not remove what another name replaces.
func (d *differences) execute(ctx context.Context, s client.Schedules) (made edits, err error) {
	for i, group := range [][]edit{d.Created, d.Changed, d.Removed} {
		for _, e := range group {
			if _, err := step(ctx, e.execute, s); err != nil {
				return made, err
			}
			made[i]++
		}
	}
	return made, nil
}

// execute makes the edit unless the schedule was edited after the comparison.
func (e *edit) execute(ctx context.Context, s client.Schedules) (created bool, err error) {
	if e.wanted == nil {
		return false, s.RemoveVersion(ctx, e.Name, e.version)
	}
	return s.Set(ctx, *e.wanted)
}

// rows are the lines of the table: one for each column, and one for each removed schedule.
func (d *differences) rows() (rows [][]any) {
	for _, group := range []struct {
		name  string
		edits []edit
	}{{"create", d.Created}, {"change", d.Changed}} {
		for _, e := range group.edits {
			for _, c := range e.Changes {
				rows = append(rows, []any{group.name, e.Name, c.Column, string(c.Old), string(c.New)})
			}
		}
	}
	for _, e := range d.Removed {
		rows = append(rows, []any{"remove", e.Name, "", "", ""})
	}
	return rows
}
