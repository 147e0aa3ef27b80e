package schedules

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	table "github.com/dispatcherd/dispatcherd/claim/schedules"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

const applyLong = `Makes the schedules equal to those of a TOML file, in one transaction. Prints the differences first. The file has a
table [NAME] for each schedule, whose keys are columns. An absent key means the default; without "paused", a
pause remains.`

// applyFlags are the flags of `schedule apply`.
type applyFlags struct{ prune, dryRun, yes bool }

func (a commands) applyCommand() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use: "apply FILE | -", SuggestFor: []string{"import", "load"}, Short: "Make the schedules equal to those of a file", Long: applyLong,
		Example: "  dispatcherd schedule apply schedules.toml --dry-run\n  dispatcherd schedule apply schedules.toml --prune --yes",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%q needs one file", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.readFile(args[0])
			if err != nil {
				return err
			}
			pool, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			return a.apply(cmd.Context(), table.Schedules{DB: pool}, list, f)
		},
	}
	cmd.Flags().BoolVar(&f.prune, "prune", false, "also remove other schedules")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only print the differences")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "remove without question")
	settings.OnlyOnCommandLine(cmd.Flags(), "prune", "dry-run", "yes")
	return cmd
}

// edit is a schedule to create, to change or to remove.
type edit struct {
	Name    string            `json:"name"`
	Changes []schedule.Change `json:"changes,omitempty"` // of a new schedule: what differs from the defaults

	wanted *contract.Schedule // nil = remove
}

// differences are the edits that make the table equal to a file.
type differences struct {
	Created []edit `json:"created"`
	Changed []edit `json:"changed"`
	Removed []edit `json:"removed"`
}

// apply prints the differences and executes them. A transaction repeats the comparison under a
// lock, so that it does exactly what was printed.
func (a commands) apply(ctx context.Context, s table.Schedules, list []wanted, f applyFlags) error {
	d, err := compare(ctx, s, list, f.prune)
	if err != nil {
		return err
	}
	if err := a.PrintRows("differences", d, []string{"edit", "schedule", "column", "old", "new"}, d.rows()); err != nil {
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
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		locked := table.Schedules{DB: tx}
		if err := locked.Lock(ctx); err != nil {
			return err
		}
		again, err := compare(ctx, locked, list, f.prune)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(d, again) {
			return exit.Errorf(exit.Conflict, "nothing was changed: another session has edited schedules since the comparison; try again")
		}
		return d.execute(ctx, locked)
	})
	if err != nil {
		return rejected(err)
	}
	a.Say("%d created, %d changed, %d removed", len(d.Created), len(d.Changed), len(d.Removed))
	return nil
}

// compare returns the differences between the table and a file, by name.
func compare(ctx context.Context, s table.Schedules, list []wanted, prune bool) (differences, error) {
	d := differences{[]edit{}, []edit{}, []edit{}}
	existing, err := readAll(ctx, s)
	if err != nil {
		return d, err
	}
	fresh := contract.NewSchedule()
	for i := range list {
		w := list[i].Schedule
		old, found := existing[w.Name]
		delete(existing, w.Name)
		if !found {
			d.Created = append(d.Created, edit{w.Name, schedule.Differences(&fresh, &w), &w})
			continue
		}
		if list[i].keepPause {
			w.Paused = old.Paused
		}
		if changes := schedule.Differences(&old, &w); len(changes) > 0 {
			d.Changed = append(d.Changed, edit{w.Name, changes, &w})
		}
	}
	if prune {
		for _, name := range slices.Sorted(maps.Keys(existing)) {
			d.Removed = append(d.Removed, edit{Name: name})
		}
	}
	return d, nil
}

// readAll reads all schedules, page by page.
func readAll(ctx context.Context, s table.Schedules) (map[string]contract.Schedule, error) {
	all := map[string]contract.Schedule{}
	for after := ""; ; {
		page, err := s.ListWhole(ctx, after, table.MaxListed)
		if err != nil {
			return nil, fmt.Errorf("listing schedules: %w", err)
		}
		for i := range page {
			all[page[i].Name] = page[i]
		}
		if len(page) < table.MaxListed {
			return all, nil
		}
		after = page[len(page)-1].Name
	}
}

// execute makes the edits.
func (d *differences) execute(ctx context.Context, s table.Schedules) error {
	for _, e := range slices.Concat(d.Created, d.Changed) {
		if _, err := s.Set(ctx, *e.wanted); err != nil {
			return err
		}
	}
	for _, e := range d.Removed {
		if err := s.Remove(ctx, e.Name); err != nil {
			return err
		}
	}
	return nil
}

// rows are the lines of the table: one for each column, and one for each removed schedule.
func (d *differences) rows() (rows [][]string) {
	for _, group := range []struct {
		name  string
		edits []edit
	}{{"create", d.Created}, {"change", d.Changed}} {
		for _, e := range group.edits {
			for _, c := range e.Changes {
				rows = append(rows, []string{group.name, e.Name, c.Column, string(c.Old), string(c.New)})
			}
		}
	}
	for _, e := range d.Removed {
		rows = append(rows, []string{"remove", e.Name, "", "", ""})
	}
	return rows
}
