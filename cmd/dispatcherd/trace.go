package main

import "github.com/spf13/cobra"

// traceCommand holds what can be done with recorded workloads. The format is
// described in docs/traces.md.
func (a *app) traceCommand() *cobra.Command {
	return a.group("trace", "Simulate, generate and replay recorded workloads",
		a.traceSimulateCommand(), a.traceReplayCommand(), a.traceDemoCommand(), a.traceGenerateCommand(), a.traceExportCommand(), a.traceWorkerCommand())
}
