package main

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/jobs"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/traces"
)

// commands lists the constructors of all commands below the root, in the order
// in which help shows them. To add a command, append its constructor here. Those
// that live in a package of their own know an invocation, not the app.
//
// A constructor must not set PersistentPreRun hooks (the root's resolves the
// settings) and marks flags that make sense for one invocation only, such as
// --yes, with settings.OnlyOnCommandLine.
var commands = []func(*app) *cobra.Command{
	(*app).devCommand,
	(*app).serveCommand,
	(*app).migrateCommand,
	part(jobs.Command),
	part(jobs.SlotCommand),
	(*app).workerCommand,
	part(traces.Command),
	(*app).debugCommand,
	part(settings.Command),
	(*app).versionCommand,
}

// part is a constructor that knows nothing of the app.
func part(constructor func(*settings.Invocation) *cobra.Command) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command { return constructor(&a.Invocation) }
}
