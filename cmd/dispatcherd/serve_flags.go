package main

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// serveFlags are the settings of serve and dev.
type serveFlags struct {
	cfg           daemon.Config
	level, format string // of the log
}

// register adds the flags with the defaults that package daemon defines. A
// setting is a flag only if two operators have reason to choose different values. All
// others are constants.
func (f *serveFlags) register(a *app, flags *pflag.FlagSet) {
	flags.SortFlags = false
	f.cfg = daemon.DefaultConfig()
	f.cfg.WorkerSocket, f.cfg.APISocket = a.OwnSocket("worker.sock"), a.OwnSocket("api.sock")
	registerConnections(flags, &f.cfg)
	registerPolicy(flags, &f.cfg)
	f.registerBounds(flags, &f.cfg)
}

// registerConnections adds the flags of sockets and Postgres.
func registerConnections(flags *pflag.FlagSet, c *daemon.Config) {
	flags.Var(cli.Socket(&c.WorkerSocket, &c.WorkerAccess), "worker-socket", "Unix socket for workers: PATH,mode=0660,group=NAME")
	flags.Var(cli.Socket(&c.APISocket, &c.APIAccess), "api-socket", "Unix socket for callers, operators and metrics, likewise")
	flags.StringVar(&c.API.Listen, "api-listen", "", "TCP address of the API, such as 127.0.0.1:8088")
	flags.StringVar(&c.WorkerListen, "worker-listen", "", "TCP address for workers, such as :7411 with TLS, or 127.0.0.1:7411 without")
	flags.StringVar(&c.API.TokenFile, "api-tokens", "",
		"file of the bearer tokens of TCP workers and callers: per line a name, the SHA-256 in hex, a role")
	flags.StringVar(&c.TLS.Cert, "tls-cert", "", "certificate in PEM, with which both TCP addresses use TLS")
	flags.StringVar(&c.TLS.Key, "tls-key", "", "key of --tls-cert in PEM, which other users cannot read")
	flags.StringVar(&c.TLS.ClientCA, "tls-client-ca", "", "CA in PEM whose certificates workers and callers may show instead of a token")
	flags.Var(&c.Allow, "allow",
		"users that may serve a type, such as pdf=1001,@50,token:gpu,cert:gpu-1; default: all (docs/explanation/security.md)")
	flags.Var(&c.AllowAPI, "allow-api", "users that may use jobs of a type over the API socket, as in --allow")
	cli.Number(flags, &c.Workers.HeartbeatTimeout, "heartbeat-timeout", "3ms", cli.LongestWait,
		"silence after which a worker counts as dead; after a third of it the dispatcher sends a ping")
	cli.InGroup(flags, "Sockets")
	flags.BoolVar(&c.Listen, "listen", true, "use NOTIFY; without it only polling finds jobs")
	cli.Number(flags, &c.Core.Poll, "poll", "1ms", "24h", "time between two full scans of the table")
	cli.Number(flags, &c.Lease, "lease", "100ms", cli.LongestWait,
		"time without heartbeat after which other dispatchers take the jobs over (docs/how-to/operations.md)")
	flags.BoolVar(&c.AsyncClaims, "async-claims", false,
		"do not wait for the disk when claiming; a crash of Postgres may then run a job twice concurrently")
	cli.InGroup(flags, "Postgres")
}

// registerPolicy adds the flags that change which job runs when.
func registerPolicy(flags *pflag.FlagSet, c *daemon.Config) {
	cli.Number(flags, &c.KeyPatience, "key-patience", "100ms", cli.LongestWait,
		"how long other jobs may pass a job that needs several keys, or that has permits but no slot yet")
	flags.Var(versionValue(&c.AppVersion), "app-version", "version of the application, for schedules that run once for each")
	core := &c.Core
	w := &core.Weights
	flags.Var(
		cli.Weights(w),
		"weights",
		"how much each part of the score counts (README.md, Properties); omitted parts keep their defaults")
	cli.Number(flags, &w.DurationWindow, "duration-window", "0s", scoring.MaxDurationWindow.String(),
		"jobs with a shorter expected duration go earlier, the shorter the earlier; 0 = off (docs/how-to/durations.md)")
	flags.Var(cli.Cap(&w.OnDemandCap), "on-demand-cap",
		"age from which a request ages no faster than a queued job; none = always faster, so requests can starve the queue")
	flags.Var(timeoutsValue(&core.Timeouts), "timeout",
		"limit of one attempt of a type, such as pdf=30s, for jobs without a limit of their own; repeatable")
	cli.Number(flags, &core.Retry.Base, "retry-base", "1ms", "24h", "wait before the first retry, doubled for each further one")
	cli.Number(flags, &core.Retry.Max, "retry-max", "1ms", "24h", "longest wait before a retry")
	cli.Number(flags, &core.Limits.Crashes, "max-crashes", "1", cli.MostAttempts, "crashes after which a job is quarantined")
	cli.Number(flags, &core.CancelGrace, "cancel-grace", "1ms", cli.Longest,
		"time for a worker to end a cancelled job before its session ends")
	cli.Number(flags, &c.Grace, "grace", "0s", cli.Longest, "time for running jobs to end when the dispatcher stops")
	cli.Number(flags, &c.Workers.Resume, "resume", "0s", cli.LongestWait,
		"time for which jobs of workers without a dispatcher continue; 0 = none")
	cli.Number(flags, &c.Workers.RemoteResume, "remote-resume", "1s", cli.Longest,
		"time after which a remote worker without connection counts as dead; it stops its jobs before")
	cli.Number(flags, &core.ReconnectGrace, "reconnect-grace", "1ms", cli.LongestWait,
		"time for the last worker of a type to reconnect before on-demand requests of the type are rejected")
	cli.InGroup(flags, "Policy")
}

// registerBounds adds the flags that bound what is held, kept and logged.
func (f *serveFlags) registerBounds(flags *pflag.FlagSet, c *daemon.Config) {
	cli.Number(flags, &c.Core.Limits.Requests, "max-requests", "1", cli.MostHeld, "on-demand requests that may wait")
	cli.Size(flags, &c.API.MaxPayload, "max-payload", "1", cli.MostInMessage,
		"largest body of one request or job; frames of workers are longer by at least 32 KiB")
	cli.Size(flags, &c.Memory, "memory-bytes", "0", cli.MostBytes,
		"memory that the Go runtime tries not to exceed; data in use may need more; 0 = no limit; GOMEMLIMIT takes precedence")
	cli.InGroup(flags, "Limits")
	cli.Number(flags, &c.Keep.Done, "keep-done", "1h", cli.Longest, "how long done and cancelled jobs are kept")
	cli.Number(flags, &c.Keep.Failed, "keep-failed", "1h", cli.Longest, "how long failed jobs are kept")
	flags.BoolVar(&c.KeepLogs, "keep-logs", false, "keep the end of the log of each attempt in its row, and stream logs")
	cli.InGroup(flags, "Retention")
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "dispatcherd"
	}
	flags.StringVar(&c.Name, "name", strings.ToValidUTF8(host, "?"), "name of this dispatcher")
	f.format, f.level = "auto", "info"
	flags.Var(cli.OneOf(&f.format, "json", "console", "auto"), "log-format", "json, console, or auto: console on a terminal")
	flags.Var(cli.OneOf(&f.level, "debug", "info", "warn", "error"), "log-level", "debug, info, warn or error")
	cli.Number(flags, &c.DecisionLog, "decision-log", "0", "10000000",
		"decisions kept for 'job why' and 'debug bundle', about 200 bytes each; 0 = none")
	cli.InGroup(flags, "Observability")
}

// versionValue is a version of the application.
func versionValue(version *string) cli.Value {
	return cli.Value{Kind: "string", Parse: func(text string) error {
		*version = text
		return schedule.CheckAppVersion(text)
	}, Format: func() string { return *version }}
}
