package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/allow"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/resources"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// serveFlags are the settings of serve and dev.
type serveFlags struct {
	cfg    daemon.Config
	mode   fileMode
	allow  allow.List
	noCap  bool
	level  zapcore.Level
	format string
}

// fileMode is a permission such as 0660.
type fileMode os.FileMode

// Set parses octal digits.
func (m *fileMode) Set(s string) error {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return errors.New("give octal permissions such as 0660")
	}
	*m = fileMode(n)
	return nil
}

// String returns octal digits.
func (m *fileMode) String() string { return fmt.Sprintf("%04o", uint32(*m)) }

// Type names the kind of value in help texts.
func (m *fileMode) Type() string { return "mode" }

// register adds the flags with the defaults that actor, workerproto and claim
// define.
func (f *serveFlags) register(a *app, flags *pflag.FlagSet) {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "dispatcherd"
	}
	f.cfg.Core, f.cfg.Workers = actor.DefaultConfig(), workerproto.Limits{}.WithDefaults()
	f.mode = 0o660
	flags.StringVar(&f.cfg.Name, "name", host, "name of this dispatcher, shown to people")
	flags.StringVar(&f.cfg.WorkerSocket, "worker-socket", a.OwnSocket("worker.sock"), "Unix socket for workers")
	flags.StringVar(&f.cfg.APISocket, "api-socket", a.OwnSocket("api.sock"), "Unix socket for callers, operators and metrics")
	flags.Var(&f.mode, "socket-mode", "permissions of the sockets")
	flags.Var(&f.allow, "allow", "who may serve a type: uids, users, @gids and @groups, such as pdf=1001,render,@50; "+
		"* stands for the types not listed; default: whoever can open the worker socket")
	flags.StringVar(&f.format, "log-format", "auto", "json, console, or auto: console on a terminal")
	f.level = zapcore.InfoLevel
	flags.Var(&levelFlag{&f.level}, "log-level", "debug, info, warn or error")
	f.registerWeights(flags)
	f.registerLimits(flags)
	f.registerTimes(flags)
	f.registerAPI(flags)
}

func (f *serveFlags) registerWeights(flags *pflag.FlagSet) {
	w := &f.cfg.Core.Weights
	flags.Int64Var(&w.Priority, "weight-priority", w.Priority, "points of one unit of priority")
	flags.Int64Var(&w.Ageing, "weight-ageing", w.Ageing, "points of one second of waiting")
	flags.Int64Var(&w.Rarity, "weight-rarity", w.Rarity, "points shared by the slots that support the type")
	flags.Int64Var(&w.OnDemand, "weight-on-demand", w.OnDemand, "points of an on-demand request")
	flags.Int64Var(&w.OnDemandAgeing, "weight-on-demand-ageing", w.OnDemandAgeing, "further points of one second of waiting of a request")
	flags.DurationVar(&w.OnDemandCap, "on-demand-cap", w.OnDemandCap, "age at which a request ages like any job again")
	flags.BoolVar(&f.noCap, "no-on-demand-cap", false, "the article's rule without the cap: enough requests starve the queue")
	settings.Between(flags, "0", "1000000000", "weight-priority", "weight-rarity", "weight-on-demand")
	settings.Between(flags, "1", "1000000", "weight-ageing")
	settings.Between(flags, "0", "1000000", "weight-on-demand-ageing")
	settings.Between(flags, "0s", settings.Longest, "on-demand-cap")
}

func (f *serveFlags) registerLimits(flags *pflag.FlagSet) {
	l := &f.cfg.Core.Limits
	flags.IntVar(&l.Slots, "max-slots", l.Slots, "slots of all workers together")
	flags.IntVar(&l.Types, "max-types", l.Types, "types known at a time")
	flags.IntVar(&l.Requests, "max-requests", l.Requests, "on-demand requests waiting at a time")
	flags.IntVar(&l.ClaimBatch, "claim-batch", l.ClaimBatch, "jobs of one claim")
	flags.IntVar(&l.FinishBatch, "finish-batch", l.FinishBatch, "ended attempts recorded by one statement")
	flags.IntVar(&l.Unfinished, "max-unrecorded", l.Unfinished, "ended attempts not yet in Postgres; at the bound no queued job starts")
	flags.IntVar(&l.LaneLength, "lane-length", l.LaneLength, "candidates read ahead for each type and priority")
	flags.IntVar(&l.LanesPerFetch, "lanes-per-fetch", l.LanesPerFetch, "types times priorities read by one statement")
	flags.IntVar(&l.LostPerList, "lost-per-list", l.LostPerList, "lost claims after which a fetched list is thrown away")
	flags.IntVar(&l.Crashes, "max-crashes", l.Crashes, "workers that may die under a job before it is quarantined")
	flags.IntVar(&f.cfg.Memory, "memory-bytes", resources.DefaultMemory, "soft limit of the memory of the Go runtime, without the pages of the program; live data may exceed it; 0 = no limit; GOMEMLIMIT takes precedence")
	p := &f.cfg.Workers
	flags.IntVar(&p.MaxFrame, "max-frame", p.MaxFrame, "bytes of a frame of the worker protocol")
	flags.IntVar(&p.MaxConnections, "max-connections", p.MaxConnections, "connections on the worker socket")
	flags.IntVar(&p.MaxSlots, "max-slots-per-worker", p.MaxSlots, "slots of one worker")
	flags.IntVar(&p.MaxTypesPerSlot, "max-types-per-slot", p.MaxTypesPerSlot, "types of one slot")
	flags.IntVar(&p.Outbox, "outbox", p.Outbox, "frames that may wait for a worker, beside two for each slot")
	settings.Between(flags, "1", "10000000", "max-slots", "max-unrecorded")
	settings.Between(flags, "1", settings.MostHeld, "max-types", "max-requests", "lane-length", "lanes-per-fetch", "lost-per-list", "max-connections",
		"max-slots-per-worker", "outbox")
	settings.Between(flags, "1", "100000", "claim-batch", "finish-batch")
	settings.Between(flags, "1", strconv.Itoa(math.MaxInt16), "max-crashes") // as the table counts
	settings.Between(flags, "1", strconv.Itoa(dispatcherd.MaxSlotTypes), "max-types-per-slot")
	settings.Between(flags, strconv.Itoa(workerproto.MinFrame), settings.MostInMessage, "max-frame")
	settings.Between(flags, "0", settings.MostBytes, "memory-bytes")
}

func (f *serveFlags) registerTimes(flags *pflag.FlagSet) {
	c, p := &f.cfg.Core, &f.cfg.Workers
	flags.DurationVar(&c.Poll, "poll", c.Poll, "between two full looks at the table")
	flags.DurationVar(&c.PollDeaf, "poll-deaf", c.PollDeaf, "between two looks while NOTIFY does not work")
	flags.DurationVar(&c.Patience, "patience", c.Patience, "how long a decision waits for a better candidate being fetched")
	flags.DurationVar(&c.Handicap, "share-handicap", c.Handicap, "what jobs of other dispatchers' shares count as younger; longer than --poll, and added to the time within which a job may be overtaken")
	flags.DurationVar(&c.Retry.Base, "retry-base", c.Retry.Base, "wait before the first retry; doubled for each further one")
	flags.DurationVar(&c.Retry.Max, "retry-max", c.Retry.Max, "longest wait before a retry")
	flags.DurationVar(&f.cfg.Keep.Done, "keep-done", daemon.DefaultKeepDone, "how long done jobs are kept")
	flags.DurationVar(&f.cfg.Keep.Failed, "keep-failed", daemon.DefaultKeepFailed, "how long failed jobs are kept")
	flags.DurationVar(&f.cfg.Keep.Cancelled, "keep-cancelled", daemon.DefaultKeepDone, "how long cancelled jobs are kept")
	flags.DurationVar(&f.cfg.Lease, "lease", daemon.DefaultLease, "silence after which other dispatchers take the jobs over")
	flags.DurationVar(&f.cfg.Beat, "beat", daemon.DefaultBeat, "between two signs of life in Postgres")
	flags.DurationVar(&f.cfg.Grace, "grace", daemon.DefaultGrace, "how long running jobs may go on when the dispatcher stops, before they are left to the next one")
	flags.Var((*timeoutFlags)(&c.Timeouts), "timeout", "limit of one attempt of a type, such as pdf=30s, for jobs that name none; repeatable")
	flags.DurationVar(&c.CancelGrace, "cancel-grace", c.CancelGrace, "from telling a worker to stop a job to ending its session")
	flags.DurationVar(&c.Comeback, "comeback", c.Comeback, "how long requests that do not want to wait for a worker wait for the last one that could serve them to connect anew")
	flags.DurationVar(&p.Resume, "resume", daemon.DefaultResume, "how long workers keep their jobs going without a dispatcher, and the jobs of one that stopped wait for them; 0 = not at all")
	flags.BoolVar(&f.cfg.Listen, "listen", true, "be woken by NOTIFY; without it only polling finds jobs")
	flags.BoolVar(&f.cfg.AsyncClaims, "async-claims", false, "do not wait for the disk when claiming; a crash of Postgres may then run a job twice at once")
	flags.DurationVar(&p.HelloTimeout, "hello-timeout", p.HelloTimeout, "from a worker's connect to its hello")
	flags.DurationVar(&p.WriteTimeout, "write-timeout", p.WriteTimeout, "for one write to a worker")
	flags.DurationVar(&p.HeartbeatInterval, "heartbeat", p.HeartbeatInterval, "silence of a worker after which it is pinged")
	flags.DurationVar(&p.HeartbeatTimeout, "heartbeat-timeout", p.HeartbeatTimeout, "silence of a worker after which it counts as dead")
	settings.Between(flags, "1ms", "24h", "poll", "poll-deaf")
	settings.Between(flags, "1ms", settings.LongestWait, "patience", "share-handicap", "comeback", "lease", "beat",
		"hello-timeout", "write-timeout", "heartbeat", "heartbeat-timeout")
	settings.Between(flags, "0s", settings.LongestWait, "resume")
	settings.Between(flags, "1ms", "24h", "retry-base", "retry-max")
	settings.Between(flags, "1ms", settings.Longest, "cancel-grace")
	settings.Between(flags, "0s", settings.Longest, "grace")
	settings.Between(flags, "1h", settings.Longest, "keep-done", "keep-failed", "keep-cancelled")
}

// config checks the settings together and completes them.
func (f *serveFlags) config() (daemon.Config, error) {
	cfg := f.cfg
	cfg.SocketMode = os.FileMode(f.mode)
	cfg.Workers.Dispatcher = cfg.Name
	cfg.Allow = f.allow
	if err := cfg.Allow.Check(); err != nil {
		return cfg, exit.Errorf(exit.Usage, "%w", err)
	}
	cfg.Core.Seed = daemon.NewSeed()
	cfg.Core.Resume = cfg.Workers.Resume
	if f.noCap {
		cfg.Core.Weights.OnDemandCap = scoring.NoCap
	}
	if err := cfg.Core.Validate(); err != nil {
		return cfg, exit.Errorf(exit.Usage, "%w", err)
	}
	if err := cfg.API.Check(); err != nil {
		return cfg, exit.Errorf(exit.Usage, "%w", err)
	}
	switch {
	case cfg.Lease < 2*cfg.Beat:
		return cfg, exit.Errorf(exit.Usage, "--lease is %v, must be at least twice --beat (%v)", cfg.Lease, cfg.Beat)
	case samePath(cfg.WorkerSocket, cfg.APISocket):
		return cfg, exit.Errorf(exit.Usage, "--worker-socket and --api-socket are both %s: workers and callers speak different protocols, give each a path of its own", cfg.WorkerSocket)
	case cfg.Workers.HeartbeatTimeout < 2*cfg.Workers.HeartbeatInterval:
		return cfg, exit.Errorf(exit.Usage, "--heartbeat-timeout is %v, must be at least twice --heartbeat (%v)",
			cfg.Workers.HeartbeatTimeout, cfg.Workers.HeartbeatInterval)
	}
	return cfg, nil
}

// levelFlag is a log level as a flag value.
type levelFlag struct{ *zapcore.Level }

// Set takes the levels that the help names.
func (l levelFlag) Set(s string) error {
	if s = strings.ToLower(s); !slices.Contains([]string{"debug", "info", "warn", "error"}, s) {
		return errors.New("give debug, info, warn or error")
	}
	return l.Level.Set(s)
}

// Type names the kind of value in help texts.
func (levelFlag) Type() string { return "level" }

// logger makes the daemon's log on the error output.
func (f *serveFlags) logger(a *app) (*zap.Logger, error) {
	format := f.format
	if format == "auto" {
		format = "json"
		if a.IsTerminal(a.Err) {
			format = "console"
		}
	}
	var enc zapcore.Encoder
	switch format {
	case "json":
		cfg := zap.NewProductionEncoderConfig()
		cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		enc = zapcore.NewJSONEncoder(cfg)
	case "console":
		cfg := zap.NewDevelopmentEncoderConfig()
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		if no, _ := a.Env("NO_COLOR"); no == "" && a.IsTerminal(a.Err) {
			cfg.EncodeLevel = zapcore.CapitalColorLevelEncoder
		}
		enc = zapcore.NewConsoleEncoder(cfg)
	default:
		return nil, exit.Errorf(exit.Usage, "--log-format is %q, give json, console or auto", f.format)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(a.Err)), f.level)), nil
}

// samePath reports whether two names are of one place, as far as names tell.
func samePath(one, other string) bool {
	a, errA := filepath.Abs(one)
	b, errB := filepath.Abs(other)
	return errA == nil && errB == nil && a == b
}
