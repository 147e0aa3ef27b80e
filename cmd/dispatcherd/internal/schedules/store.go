package schedules

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule/scheduleapi"
	table "github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// patience bounds a command over the API, and each step of a command with any number of steps.
const patience = time.Minute

// onSchedules completes a command that uses the table, or the API if no database is configured.
func (a commands) onSchedules(cmd *cobra.Command, do func(ctx context.Context, s scheduleapi.Table, args []string) error) *cobra.Command {
	var at ask.Dispatcher
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.onTableOrAPI(cmd.Context(), &at, func(ctx context.Context, s scheduleapi.Table) error {
			if _, overAPI := s.(remote); !overAPI {
				return do(ctx, s, args)
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			err := do(ctx, s, args)
			if len(args) > 0 {
				err = about(args[0], err)
			}
			return err
		})
	}
	a.APIFlags(cmd.Flags(), &at)
	return cmd
}

// onTableOrAPI calls do with the table, or with the API if no database is configured.
func (a commands) onTableOrAPI(ctx context.Context, at *ask.Dispatcher, do func(context.Context, scheduleapi.Table) error) error {
	return a.TableOrAPI(ctx, func(pool *pgxpool.Pool) error {
		return do(ctx, table.Schedules{DB: pool})
	}, func() error {
		c, err := at.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		return at.ExplainOther(do(ctx, remote{c.Schedules()}), table.ErrNotFound)
	})
}

// remote are the schedules as the API of a dispatcher shows them.
type remote struct{ client.Schedules }

// Get returns table.ErrNotFound if there is no such schedule.
func (r remote) Get(ctx context.Context, name string) (contract.Schedule, error) {
	v, err := r.Schedules.Get(ctx, name)
	return v, about(name, err)
}

// about returns table.ErrNotFound if a dispatcher has no such schedule.
func about(name string, err error) error {
	return ask.Missing("schedule", name, err, table.ErrNotFound)
}
