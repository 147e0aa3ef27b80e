package main

import (
	"math"
	"os"
	"strconv"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// serveFlags are the settings of serve and dev.
type serveFlags struct {
	cfg    daemon.Config
	level  zapcore.Level
	format string
}

// register adds the flags with the defaults that actor, workerproto and api define. A
// setting is a flag only if two operators have reason to choose different values. All
// others are constants.
func (f *serveFlags) register(a *app, flags *pflag.FlagSet) {
	flags.SortFlags = false
	f.cfg.Core, f.cfg.Workers, f.cfg.API = config.Default(), workerproto.Limits{}.WithDefaults(), daemon.DefaultAPIConfig()
	cli.Grouped(flags, "Sockets", func(flags *pflag.FlagSet) { f.registerSockets(a, flags) })
	cli.Grouped(flags, "Postgres", f.registerPostgres)
	cli.Grouped(flags, "Policy", f.registerPolicy)
	cli.Grouped(flags, "Limits", f.registerLimits)
	cli.Grouped(flags, "Retention", f.registerRetention)
	cli.Grouped(flags, "Observability", f.registerObservability)
}

func (f *serveFlags) registerSockets(a *app, flags *pflag.FlagSet) {
	f.cfg.WorkerSocket, f.cfg.APISocket = a.OwnSocket("worker.sock"), a.OwnSocket("api.sock")
	flags.Var(cli.Socket(&f.cfg.WorkerSocket, &f.cfg.WorkerAccess), "worker-socket", "Unix socket for workers: PATH,mode=0660,group=NAME")
	flags.Var(cli.Socket(&f.cfg.APISocket, &f.cfg.APIAccess), "api-socket", "Unix socket for callers, operators and metrics, likewise")
	flags.StringVar(&f.cfg.API.Listen, "api-listen", "", "TCP address of the API, such as 127.0.0.1:8088")
	flags.StringVar(&f.cfg.API.TokenFile, "api-tokens", "",
		"file of the bearer tokens of TCP callers: on each line a name and the SHA-256 of the token in hex")
	flags.Var(&f.cfg.Allow, "allow", "users that may serve a type, such as pdf=1001,render,@50; default: all (docs/explanation/security.md)")
	flags.Var(&f.cfg.AllowAPI, "allow-api", "users that may use jobs of a type over the API socket, as in --allow")
	p := &f.cfg.Workers
	flags.DurationVar(&p.HeartbeatTimeout, "heartbeat-timeout", p.HeartbeatTimeout,
		"silence after which a worker counts as dead; a ping follows every third of it")
	cli.Between(flags, "3ms", cli.LongestWait, "heartbeat-timeout")
}

func (f *serveFlags) registerPostgres(flags *pflag.FlagSet) {
	flags.BoolVar(&f.cfg.Listen, "listen", true, "use NOTIFY; without it only polling finds jobs")
	flags.DurationVar(&f.cfg.Core.Poll, "poll", f.cfg.Core.Poll, "time between two full scans of the table")
	flags.DurationVar(
		&f.cfg.Lease,
		"lease",
		daemon.DefaultLease,
		"time without heartbeat after which other dispatchers take the jobs over (docs/how-to/operations.md)",
	)
	flags.BoolVar(&f.cfg.AsyncClaims, "async-claims", false,
		"do not wait for the disk when claiming; a crash of Postgres may then run a job twice concurrently")
	cli.Between(flags, "1ms", "24h", "poll")
	cli.Between(flags, "100ms", cli.LongestWait, "lease")
}

func (f *serveFlags) registerPolicy(flags *pflag.FlagSet) {
	flags.DurationVar(&f.cfg.KeyPatience, "key-patience", daemon.DefaultKeyPatience,
		"how long others pass a job that waits for several keys, or for a slot with its permits")
	flags.Var(versionValue(&f.cfg.AppVersion), "app-version", "version of the application, for schedules that run once for each")
	c := &f.cfg.Core
	w := &c.Weights
	flags.Var(
		cli.Weights(w),
		"weights",
		"how much each part of the score counts (README.md, Properties); omitted parts keep their defaults",
	)
	flags.DurationVar(
		&w.DurationWindow,
		"duration-window",
		0,
		"expected duration from which a job gains nothing; shorter ones go first; 0 = off (docs/how-to/durations.md)",
	)
	flags.Var(cli.Cap(&w.OnDemandCap), "on-demand-cap",
		"age from which a request ages like a queued job; none = never, then requests can starve the queue")
	flags.Var((*timeoutFlags)(&c.Timeouts), "timeout",
		"limit of one attempt of a type, such as pdf=30s, for jobs without a limit of their own; repeatable")
	flags.DurationVar(&c.Retry.Base, "retry-base", c.Retry.Base, "wait before the first retry, doubled for each further one")
	flags.DurationVar(&c.Retry.Max, "retry-max", c.Retry.Max, "longest wait before a retry")
	flags.IntVar(&c.Limits.Crashes, "max-crashes", c.Limits.Crashes, "crashes after which a job is quarantined")
	flags.DurationVar(&c.CancelGrace, "cancel-grace", c.CancelGrace, "time for a worker to end a cancelled job before its session ends")
	flags.DurationVar(&f.cfg.Grace, "grace", daemon.DefaultGrace, "time for running jobs to end when the dispatcher stops")
	flags.DurationVar(&f.cfg.Workers.Resume, "resume", daemon.DefaultResume,
		"time for which jobs of workers without a dispatcher continue; 0 = none")
	flags.DurationVar(&c.ReconnectGrace, "reconnect-grace", c.ReconnectGrace,
		"time for the last worker of a type to reconnect before on-demand requests of the type are rejected")
	cli.Between(flags, "0s", scoring.MaxDurationWindow.String(), "duration-window")
	cli.Between(flags, "1ms", "24h", "retry-base", "retry-max")
	cli.Between(flags, "1", strconv.Itoa(math.MaxInt16), "max-crashes") // the column is a smallint
	cli.Between(flags, "1ms", cli.Longest, "cancel-grace")
	cli.Between(flags, "0s", cli.Longest, "grace")
	cli.Between(flags, "0s", cli.LongestWait, "resume")
	cli.Between(flags, "100ms", cli.LongestWait, "key-patience")
	cli.Between(flags, "1ms", cli.LongestWait, "reconnect-grace")
}

func (f *serveFlags) registerLimits(flags *pflag.FlagSet) {
	flags.IntVar(&f.cfg.Core.Limits.Requests, "max-requests", f.cfg.Core.Limits.Requests, "on-demand requests that may wait")
	flags.IntVar(&f.cfg.API.MaxPayload, "max-payload", f.cfg.API.MaxPayload,
		"bytes of the body of one request or job; frames of workers are longer by at least 32 KiB")
	flags.IntVar(&f.cfg.Memory, "memory-bytes", daemon.DefaultMemory,
		"soft memory limit of the Go runtime; live data may exceed it; 0 = none; GOMEMLIMIT takes precedence")
	cli.Between(flags, "1", cli.MostHeld, "max-requests")
	cli.Between(flags, "1", cli.MostInMessage, "max-payload")
	cli.Between(flags, "0", cli.MostBytes, "memory-bytes")
}

func (f *serveFlags) registerRetention(flags *pflag.FlagSet) {
	flags.DurationVar(&f.cfg.Keep.Done, "keep-done", daemon.DefaultKeepDone, "how long done and cancelled jobs are kept")
	flags.DurationVar(&f.cfg.Keep.Failed, "keep-failed", daemon.DefaultKeepFailed, "how long failed jobs are kept")
	flags.BoolVar(&f.cfg.KeepLogs, "keep-logs", false, "keep the end of the log of each attempt in its row, and stream logs")
	cli.Between(flags, "1h", cli.Longest, "keep-done", "keep-failed")
}

func (f *serveFlags) registerObservability(flags *pflag.FlagSet) {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "dispatcherd"
	}
	flags.StringVar(&f.cfg.Name, "name", host, "name of this dispatcher")
	flags.StringVar(&f.format, "log-format", "auto", "json, console, or auto: console on a terminal")
	f.level = zapcore.InfoLevel
	flags.Var(levelValue(&f.level), "log-level", "debug, info, warn or error")
	flags.IntVar(&f.cfg.DecisionLog, "decision-log", decisionlog.DefaultEntries,
		"decisions kept for 'job why' and 'debug bundle', about 200 bytes each; 0 = none")
	cli.Between(flags, "0", "10000000", "decision-log")
}

// versionValue is a version of the application.
func versionValue(version *string) cli.Value {
	return cli.Value{Kind: "string", Parse: func(text string) error {
		*version = text
		return schedule.CheckAppVersion(text)
	}, Format: func() string { return *version }}
}
