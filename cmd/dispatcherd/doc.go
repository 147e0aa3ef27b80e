// Dispatcherd assigns jobs to the slots of workers. This command contains the daemon and the
// commands for the schema, jobs, workers and traces.
//
// # Structure
//
// run builds an app (streams, environment), adds the command of every constructor of
// [commands] to the root, and maps the returned error to a message and an exit code
// (internal/exit). No command uses os.Args, os.Stdout or os.Exit, so tests run the whole
// program in process. serve, dev and trace replay start internal/daemon. The commands
// about jobs and traces are in internal/jobs and internal/traces. Both packages get an
// invocation and not the app. All commands share internal/settings, internal/console and
// internal/ask, which import no command.
//
// # Configuration
//
// Every flag is also a setting unless its command excludes it. A flag overrides the
// environment (DISPATCHERD_ and the flag's name), which overrides the file, which overrides
// the default; see internal/settings. No other package reads flags or the environment.
package main
