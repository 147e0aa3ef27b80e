package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// ScheduleCommand is the group of commands about schedules.
func (a *Invocation) ScheduleCommand() *cobra.Command {
	return a.APIGroup("schedule", "List, set, explain, pause, resume or run schedules of jobs", a.scheduleListCommand(),
		a.scheduleShowCommand(), a.scheduleNextCommand(), a.scheduleSetCommand(), a.scheduleApplyCommand(),
		a.scheduleChangeCommand("removed", client.Schedules.Remove, New("rm NAME", "Remove a schedule; its runs end normally",
			"  dispatcherd schedule rm nightly")),
		a.scheduleChangeCommand("paused", client.Schedules.Pause, New("pause NAME", "Pause a schedule; no occasion is missed meanwhile",
			"  dispatcherd schedule pause nightly")),
		a.scheduleChangeCommand("resumed", client.Schedules.Resume, New("resume NAME", "Resume a paused schedule",
			"  dispatcherd schedule resume nightly")),
		a.scheduleRunCommand(), a.scheduleBackfillCommand())
}

const scheduleSetLong = `Creates a schedule, or changes columns of it (docs/how-to/schedules.md). An empty VALUE means the
default. The default kind is cron, which needs spec. The columns:

`

func (a *Invocation) scheduleSetCommand() *cobra.Command {
	cmd := New("set NAME COLUMN=VALUE…", "Create or change a schedule",
		`  dispatcherd schedule set nightly spec='30 2 * * *' time_zone=Europe/Berlin type=report
  dispatcherd schedule set sweep kind=interval every=10m type=sweep payload='{"depth": 2}'`, scheduleSetLong, schedule.DescribeColumns())
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		return a.setSchedule(ctx, a.client.Schedules(), args[0], args[1:])
	})
}

// setSchedule changes columns of a schedule, or of a new one.
func (a *Invocation) setSchedule(ctx context.Context, s client.Schedules, name string, assignments []string) error {
	v, err := s.Get(ctx, name)
	if IsMissing(err) {
		v, err = contract.NewSchedule(), nil
		v.Name, v.Version = name, contract.NoVersion
	}
	if err != nil {
		return err
	}
	err = Assignments(assignments, func(column, value string) error { return schedule.AssignText(&v, column, value) })
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
	return a.PrintLine("schedule", v, "schedule %s %s", name, did)
}

// scheduleChangeCommand is a command that changes the schedule that it names.
func (a *Invocation) scheduleChangeCommand(
	did string,
	change func(client.Schedules, context.Context, string) error,
	cmd *cobra.Command,
) *cobra.Command {
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		if err := change(a.client.Schedules(), ctx, args[0]); err != nil {
			return err
		}
		return a.printDone(did, "schedule", "name", args[0])
	})
}
