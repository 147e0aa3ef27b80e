// Package traces contains the commands about recorded workloads: generate a trace,
// export one from ended jobs, run one through the core in simulated time (simulate)
// or through the daemon, workers and Postgres (replay, demo).
// internal/trace and docs/how-to/traces.md define traces.
//
// A replay has three parts, which can be tested separately. The clock and the
// counters (replay.go) use a host, which accepts jobs, and workers. The host is a
// daemon in this process with a private Postgres (host.go). The workers (worker.go)
// use the worker SDK over the socket of the daemon, according to plans (plan.go).
package traces

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
)

// Command is the group of commands about traces.
func Command(invocation *cli.Invocation) *cobra.Command {
	a := commands{invocation}
	return cli.Group("trace", "Simulate, generate and replay recorded workloads",
		a.simulateCommand(), a.adviseCommand(), a.replayCommand(), a.demoCommand(), a.generateCommand(), a.exportCommand())
}

// commands holds the invocation that the commands use.
type commands struct{ *cli.Invocation }
