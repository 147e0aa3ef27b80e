// Package schedules contains the commands about schedules.
package schedules

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// Command is the group of commands about schedules.
func Command(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	return a.APIGroup("schedule", "List, set, explain, pause, resume or run schedules of jobs", a.listCommand(),
		a.showCommand(), a.nextCommand(), a.setCommand(), a.applyCommand(), a.removeCommand(), a.pauseCommand(),
		a.resumeCommand(), a.runCommand(), a.backfillCommand())
}

// commands holds the invocation that the commands use.
type commands struct{ *settings.Invocation }

const setLong = `Creates a schedule, or changes columns of it (docs/how-to/schedules.md). An empty VALUE means the default. The default
kind is cron.`

func (a commands) setCommand() *cobra.Command {
	return a.OnAPI(&cobra.Command{
		Use: "set NAME COLUMN=VALUE…", Short: "Create or change a schedule", Long: setLong,
		Example: `  dispatcherd schedule set nightly spec='30 2 * * *' time_zone=Europe/Berlin type=report
  dispatcherd schedule set sweep kind=interval every=10m type=sweep payload='{"depth": 2}'`,
	}, func(ctx context.Context, c *client.Client, args []string) error {
		return a.set(ctx, c.Schedules(), args[0], args[1:])
	})
}

// set changes columns of a schedule, or of a new one.
func (a commands) set(ctx context.Context, s client.Schedules, name string, assignments []string) error {
	v, err := s.Get(ctx, name)
	if ask.IsMissing(err) {
		v, err = contract.NewSchedule(), nil
		v.Name, v.Version = name, contract.NoVersion
	}
	if err != nil {
		return err
	}
	err = settings.Assignments(assignments, func(column, value string) error { return schedule.AssignText(&v, column, value) })
	if err != nil {
		return err
	}
	created, err := s.Set(ctx, v)
	if err != nil {
		return err
	}
	did := "changed"
	if created {
		did = "created"
	}
	if v, err = s.Get(ctx, name); err != nil {
		return err
	}
	return a.PrintLine("schedule", v, "schedule "+name+" "+did)
}

// changeCommand is a command that changes the schedule that it names.
func (a commands) changeCommand(
	did string,
	change func(client.Schedules, context.Context, string) error,
	cmd *cobra.Command,
) *cobra.Command {
	return a.OnAPI(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		if err := change(c.Schedules(), ctx, args[0]); err != nil {
			return err
		}
		return a.PrintLine(did, map[string]string{"name": args[0]}, "schedule "+args[0]+" "+did)
	})
}

func (a commands) removeCommand() *cobra.Command {
	return a.changeCommand("removed", client.Schedules.Remove, settings.New("rm NAME", "Remove a schedule; its runs end normally",
		"  dispatcherd schedule rm nightly"))
}

func (a commands) pauseCommand() *cobra.Command {
	return a.changeCommand("paused", client.Schedules.Pause, settings.New("pause NAME", "Pause a schedule; no occasion is missed meanwhile",
		"  dispatcherd schedule pause nightly"))
}

func (a commands) resumeCommand() *cobra.Command {
	return a.changeCommand("resumed", client.Schedules.Resume, settings.New("resume NAME", "Resume a paused schedule",
		"  dispatcherd schedule resume nightly"))
}
