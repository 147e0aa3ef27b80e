// Package traces is the commands about recorded workloads: generate one, export
// one from what ended lately, run one through the deciding core in simulated time
// (simulate) or through the daemon, worker processes and Postgres (replay, demo).
// What a trace is, is in internal/trace and docs/traces.md; this is what a user
// does with one.
//
// A replay is in three parts, so that each can be tested without the others. Its
// clock and its accounts (replay.go) know a host, that is, where jobs are handed
// in, and worker processes. The host is the daemon on a private Postgres, in this
// process (host.go). A worker is this program started once more (process.go); what
// it does there is in worker.go, and what the two say to each other in plan.go.
package traces

import (
	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
)

// Command is the group of commands about traces.
func Command(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	return settings.Group("trace", "Simulate, generate and replay recorded workloads",
		a.simulateCommand(), a.replayCommand(), a.demoCommand(), a.generateCommand(), a.exportCommand(), a.workerCommand())
}

// commands close over one invocation of the program.
type commands struct{ *settings.Invocation }
