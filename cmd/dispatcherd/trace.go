package main

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
)

// traceCommand holds what can be done with recorded workloads. The format is
// described in docs/traces.md.
func (a *app) traceCommand() *cobra.Command {
	return settings.Group("trace", "Simulate, generate and replay recorded workloads",
		a.traceSimulateCommand(), a.traceReplayCommand(), a.traceDemoCommand(), a.traceGenerateCommand(), a.traceExportCommand(), a.traceWorkerCommand())
}
