package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/migrations"
)

func (a *app) migrateCommand() *cobra.Command {
	group := cli.Group("migrate", "Create, upgrade or remove the schema of the database",
		a.migrateUpCommand(), a.migrateDownCommand(), a.migrateStatusCommand())
	for _, cmd := range group.Commands() {
		a.DatabaseFlag(cmd.Flags())
	}
	return group
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Apply every missing migration",
		Long: `Applies every missing migration. Several instances may do so concurrently.
Gives the roles of docs/explanation/security.md their rights if they were created later.`,
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
			lines := []string{}
			for _, v := range applied {
				lines = append(lines, fmt.Sprintf("applied version %d", v))
			}
			if len(applied) == 0 {
				applied, lines = []int64{}, []string{"nothing to do"}
			}
			if err := a.PrintLine("applied", applied, strings.Join(lines, "\n")); err != nil {
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
	var yes bool
	cmd := &cobra.Command{
		Use: "down", Short: "Remove the schema with all jobs",
		Long: `Removes the schema dispatcherd, even if another build has created it. This deletes all jobs,
schedules and limits. It also removes everything that depends on the schema, such as views in
other schemas. The roles remain. Without --yes the command asks first. Without a terminal it
needs --yes.`,
		Example: "  dispatcherd migrate down\n  dispatcherd migrate down --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := a.DatabaseURL()
			if err != nil {
				return err
			}
			if !yes {
				if err := a.Agree(cmd.Context(), "remove the schema dispatcherd with all jobs, schedules and limits", "--yes"); err != nil {
					return err
				}
			}
			removed, err := migrations.Down(cmd.Context(), dsn)
			if err != nil {
				return err
			}
			line := "nothing to do"
			if removed {
				line = "removed the schema dispatcherd"
			}
			return a.PrintLine("removed", removed, line)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cli.OnlyOnCommandLine(cmd.Flags())
	return cmd
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the migrations and which of them are applied",
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
	missing := 0
	for _, s := range steps {
		if s.AppliedAt == nil {
			missing++
		}
	}
	err := cli.PrintRows(&a.Invocation, "migrations", steps, "version, name, applied", func(s *migrations.Migration) []any {
		if s.AppliedAt == nil {
			return []any{s.Version, s.Name, "pending"}
		}
		return []any{s.Version, s.Name, s.AppliedAt.Format(time.RFC3339)}
	})
	if err != nil {
		return err
	}
	if missing > 0 {
		return exit.Errorf(exit.Negative, "%d of %d migrations are not applied: run 'dispatcherd migrate up'", missing, len(steps))
	}
	return nil
}
