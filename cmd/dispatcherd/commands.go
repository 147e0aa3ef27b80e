package main

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/flows"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/jobs"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/limits"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/schedules"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/traces"
)

// commands lists the constructors of all commands below the root, in the order
// in which help shows them. To add a command, append its constructor here. Commands of other
// packages get an invocation, not the app.
//
// A constructor must not set PersistentPreRun hooks: cobra would call them
// instead of the root's hook, which resolves the settings. It marks flags that
// belong to one invocation only, such as --yes, with settings.OnlyOnCommandLine.
var commands = []func(*app) *cobra.Command{
	(*app).devCommand,
	(*app).serveCommand,
	(*app).migrateCommand,
	part(jobs.Command),
	part(jobs.RequestCommand),
	part(jobs.FanOutCommand),
	part(jobs.TypesCommand),
	part(jobs.SlotCommand),
	part(jobs.DispatcherCommand),
	part(schedules.Command),
	part(limits.LimitCommand),
	part(limits.KeyCommand),
	part(flows.BatchCommand),
	part(flows.FlowCommand),
	(*app).workerCommand,
	part(traces.Command),
	(*app).debugCommand,
	part(settings.Command),
	(*app).versionCommand,
}

// part adapts a constructor that does not need the app.
func part(constructor func(*settings.Invocation) *cobra.Command) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command { return constructor(&a.Invocation) }
}
