package main

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
)

// commands lists the constructors of all commands below the root, in the order
// in which help shows them. To add a command, append its constructor here.
//
// A constructor must not set PersistentPreRun hooks (the root's resolves the
// settings) and marks flags that make sense for one invocation only, such as
// --yes, with settings.OnlyOnCommandLine.
var commands = []func(*app) *cobra.Command{
	(*app).devCommand,
	(*app).serveCommand,
	(*app).migrateCommand,
	(*app).jobCommand,
	(*app).slotCommand,
	(*app).workerCommand,
	(*app).traceCommand,
	(*app).debugCommand,
	(*app).replayCommand,
	func(a *app) *cobra.Command { return settings.Command(&a.Invocation) },
	(*app).versionCommand,
}
