// Dispatcherd decides, for every free slot of every worker, which job runs there
// next. This command is the daemon and everything around it: schema, jobs,
// workers, traces.
//
// # How the command is put together
//
// run builds an app (streams, environment), hangs every constructor of
// [commands] below the root, and turns the error that comes back into a message
// and an exit code (internal/exit). No command looks at os.Args, os.Stdout or
// os.Exit, so tests run the whole program in process. What serve, dev and a replay
// start is internal/daemon. The commands about jobs and traces are internal/jobs and
// internal/traces, which know an invocation and not the app. What all commands share
// (internal/settings, internal/console, internal/ask) knows nothing of these.
//
// # Configuration
//
// Every flag is a setting too, unless its command says that it is not: flag over
// environment (DISPATCHERD_ and the flag's name) over file over default; see
// internal/settings. Flags and environment are read nowhere else in the module.
package main
