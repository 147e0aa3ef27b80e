package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/migrations"
)

func (a *app) migrateCommand() *cobra.Command {
	group := settings.Group("migrate", "Apply, undo or list the migrations of the database",
		a.migrateUpCommand(), a.migrateDownCommand(), a.migrateStatusCommand())
	for _, cmd := range group.Commands() {
		a.DatabaseFlag(cmd.Flags())
	}
	return group
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Apply every missing migration", Args: settings.NoArguments,
		Long: `Applies every missing migration. Several instances may do so concurrently.
Gives the roles of docs/security.md their rights if they were created later.`,
		Example: "  dispatcherd migrate up --database-url postgres://…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := a.DatabaseURL()
			if err != nil {
				return err
			}
			applied, err := migrations.Up(cmd.Context(), dsn)
			if err != nil {
				return err
			}
			if err := a.printVersions("applied", applied); err != nil {
				return err
			}
			return a.warnOfMissingRoles(cmd.Context(), dsn)
		},
	}
}

// warnOfMissingRoles names the roles that no migration could create.
func (a *app) warnOfMissingRoles(ctx context.Context, dsn string) error {
	missing, err := migrations.MissingRoles(ctx, dsn)
	if err != nil || len(missing) == 0 {
		return err
	}
	fmt.Fprintf(
		a.Err,
		"warning: the server has no role %s, because no migration was allowed to create roles. A superuser can: CREATE ROLE %s "+
			"NOLOGIN; then run 'dispatcherd migrate up' again, which grants the rights\n",
		strings.Join(missing, ", "),
		strings.Join(missing, " NOLOGIN; CREATE ROLE "),
	)
	return nil
}

func (a *app) migrateDownCommand() *cobra.Command {
	var to int64
	var yes bool
	cmd := &cobra.Command{
		Use: "down", Short: "Undo migrations and delete their data", Args: settings.NoArguments,
		Long: `Undoes the latest migration, or all above --to. --to 0 removes the schema with all jobs.
Without --yes it prints only what would be lost.`,
		Example: "  dispatcherd migrate down\n  dispatcherd migrate down --to 0 --yes",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.migrateDown(cmd.Context(), to, yes) },
	}
	cmd.Flags().Int64Var(&to, "to", -1, "target version; -1 = one below the current one")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	settings.OnlyOnCommandLine(cmd.Flags(), "to", "yes")
	settings.Between(cmd.Flags(), "-1", settings.LargestID, "to")
	return cmd
}

func (a *app) migrateDown(ctx context.Context, to int64, yes bool) error {
	dsn, err := a.DatabaseURL()
	if err != nil {
		return err
	}
	steps, err := migrations.Status(ctx, dsn)
	if err != nil {
		return err
	}
	var at int64
	for _, s := range steps {
		if s.AppliedAt != nil {
			at = s.Version
		}
	}
	switch {
	case to > at:
		return exit.Errorf(
			exit.Usage,
			"--to is %d, but the schema is at version %d: name a lower one, or go up with 'dispatcherd migrate up'",
			to,
			at,
		)
	case to < 0:
		to = max(at-1, 0)
	}
	var undo []string
	for _, s := range steps {
		if s.AppliedAt != nil && s.Version > to {
			undo = append(undo, s.Name)
		}
	}
	if len(undo) == 0 {
		return a.printVersions("undone", nil)
	}
	if !yes {
		return a.sayWhatIsLost(ctx, undo, to)
	}
	undone, err := migrations.Down(ctx, dsn, to)
	if err != nil {
		return err
	}
	return a.printVersions("undone", undone)
}

// sayWhatIsLost is the output of `migrate down` without --yes.
func (a *app) sayWhatIsLost(ctx context.Context, undo []string, to int64) error {
	lost := "This would undo " + strings.Join(undo, ", ")
	if to == 0 {
		pool, err := a.Connect(ctx)
		if err != nil {
			return err
		}
		defer pool.Close()
		counts, err := claim.Jobs{DB: pool}.Counts(ctx)
		if err != nil {
			return fmt.Errorf("counting the jobs: %w", err)
		}
		lost += " and remove the schema dispatcherd with " + countedJobs(counts)
	}
	return exit.Errorf(exit.Negative, "nothing was changed. %s. Add --yes to do it", lost)
}

// countedJobs returns the number of jobs, in all and by status.
func countedJobs(counts map[dispatcherd.Status]int64) string {
	var total int64
	var parts []string
	for _, status := range dispatcherd.Statuses {
		if n := counts[status]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	if total == 0 {
		return "no jobs in it"
	}
	return fmt.Sprintf("%s in it (%s)", console.Counted(total, "job"), strings.Join(parts, ", "))
}

// printVersions prints which versions were applied or undone.
func (a *app) printVersions(done string, versions []int64) error {
	lines := []string{}
	for _, v := range versions {
		lines = append(lines, fmt.Sprintf("%s version %d", done, v))
	}
	if len(versions) == 0 {
		versions, lines = []int64{}, []string{"nothing to do"}
	}
	return a.PrintLine(done, versions, strings.Join(lines, "\n"))
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the migrations and which of them are applied", Args: settings.NoArguments,
		Long:    "Lists the migrations of this build. Exits 1 if one of them is not applied.",
		Example: "  dispatcherd migrate status\n  dispatcherd migrate status -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := a.DatabaseURL()
			if err != nil {
				return err
			}
			steps, err := migrations.Status(cmd.Context(), dsn)
			if err != nil {
				return err
			}
			if err := a.printStatus(steps); err != nil {
				return err
			}
			return a.warnOfMissingRoles(cmd.Context(), dsn)
		},
	}
}

func (a *app) printStatus(steps []migrations.Migration) error {
	rows := make([][]string, len(steps))
	missing := 0
	for i, s := range steps {
		when := "pending"
		if s.AppliedAt == nil {
			missing++
		} else {
			when = s.AppliedAt.Format(time.RFC3339)
		}
		rows[i] = []string{strconv.FormatInt(s.Version, 10), s.Name, when}
	}
	if err := a.PrintRows("migrations", steps, []string{"version", "name", "applied"}, rows); err != nil {
		return err
	}
	if missing > 0 {
		return exit.Errorf(exit.Negative, "%d of %d migrations are not applied: run 'dispatcherd migrate up'", missing, len(steps))
	}
	return nil
}
