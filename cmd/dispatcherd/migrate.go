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
	return cli.Group("migrate", "Create, upgrade or remove the schema of the database",
		a.migrateUpCommand(), a.migrateDownCommand(), a.migrateStatusCommand())
}

// onDatabase completes a command that uses the database itself.
func (a *app) onDatabase(cmd *cobra.Command, do func(ctx context.Context, dsn string) error) *cobra.Command {
	a.DatabaseFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dsn, err := a.DatabaseURL()
		if err != nil {
			return err
		}
		return do(cmd.Context(), dsn)
	}
	return cmd
}

func (a *app) migrateUpCommand() *cobra.Command {
	return a.onDatabase(cli.New("up", "Apply every missing migration", "  dispatcherd migrate up --database-url postgres://…",
		`Applies every missing migration. Several instances may do so concurrently.
Gives the roles of docs/explanation/security.md their rights if they were created later.`), func(ctx context.Context, dsn string) error {
		applied, err := migrations.Up(ctx, dsn)
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
		if err := a.PrintLine("applied", applied, "%s", strings.Join(lines, "\n")); err != nil {
			return err
		}
		return a.warnOfMissingRoles(ctx, dsn)
	})
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
	cmd := cli.New("down", "Remove the schema with all jobs", "  dispatcherd migrate down\n  dispatcherd migrate down --yes",
		`Removes the schema dispatcherd, even if another build has created it. This deletes all jobs,
schedules and limits. It also removes everything that depends on the schema, such as views in
other schemas. The roles remain. Without --yes the command asks first. Without a terminal it
needs --yes.`)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cli.OnlyOnCommandLine(cmd.Flags())
	return a.onDatabase(cmd, func(ctx context.Context, dsn string) error {
		if !yes {
			if err := a.Agree(ctx, "remove the schema dispatcherd with all jobs, schedules and limits", "--yes"); err != nil {
				return err
			}
		}
		removed, err := migrations.Down(ctx, dsn)
		if err != nil {
			return err
		}
		line := "nothing to do"
		if removed {
			line = "removed the schema dispatcherd"
		}
		return a.PrintLine("removed", removed, "%s", line)
	})
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return a.onDatabase(cli.New("status", "List the migrations and which of them are applied",
		"  dispatcherd migrate status\n  dispatcherd migrate status -o json",
		"Lists the migrations of this build. Exits 1 if one of them is not applied."), func(ctx context.Context, dsn string) error {
		steps, err := migrations.Status(ctx, dsn)
		if err != nil {
			return err
		}
		if err := a.printStatus(steps); err != nil {
			return err
		}
		return a.warnOfMissingRoles(ctx, dsn)
	})
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
