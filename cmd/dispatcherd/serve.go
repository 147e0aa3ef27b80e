package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/migrations"
)

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	var migrate bool
	cmd := cli.New("serve", "Run the dispatcher on your Postgres", `  dispatcherd serve --database-url postgres://dispatcherd@db/app --migrate
  DATABASE_URL=postgres://… dispatcherd serve --worker-socket /run/dispatcherd/worker.sock
  dispatcherd serve --weights ageing=32   # a priority unit is worth 32 s of waiting, not 64`,
		`Runs the dispatcher until SIGINT or SIGTERM. Then it starts no more jobs and waits up to
--grace for running jobs. Workers continue the jobs that have not ended by then for up to --resume,
and offer them to the next dispatcher on the socket. A second signal ends the dispatcher at once,
as kill -9 does. No job is lost: a dispatcher that starts on the same socket of the same host takes
the jobs over at once, and dispatchers on other hosts do so after --lease.
SIGHUP reads the files of --api-tokens and --tls-* again; this also happens when they change.`)
	cmd.Annotations = map[string]string{cli.NoteLogs: "yes"}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP) // first: an unhandled SIGHUP ends the process
		defer signal.Stop(hangups)
		cfg, log, err := f.start(a, cmd)
		if err != nil {
			return err
		}
		if cfg.DSN, err = a.DatabaseURL(); err != nil {
			return err
		}
		cfg.Reload = hangups
		cfg.Supervisor.Notify = func(message string) (bool, error) { return systemd.SdNotify(false, message) }
		cfg.Supervisor.Watchdog, _ = systemd.SdWatchdogEnabled(false) // without a valid limit there is no watchdog
		if cfg.Inherited, err = daemon.InheritedSockets(); err != nil {
			return exit.Usagef("%w", err)
		}
		if migrate {
			if err := migrateFirst(cmd.Context(), cfg.DSN); err != nil {
				return err
			}
		}
		d, err := daemon.Start(cmd.Context(), cfg, log)
		if err != nil {
			return err
		}
		return d.Run(cmd.Context())
	}
	f.register(a, cmd.Flags())
	a.DatabaseFlag(cmd.Flags())
	cmd.Flags().BoolVar(&migrate, "migrate", false, "apply missing migrations first")
	cli.InGroup(cmd.Flags(), "Postgres")
	return cmd
}

// start checks the settings of a daemon, completes them, and makes its log.
func (f *serveFlags) start(a *app, cmd *cobra.Command) (cfg daemon.Config, log *zap.Logger, err error) {
	outliveLog()
	if cfg, err = f.config(); err != nil {
		return cfg, nil, err
	}
	cfg.Settings, cfg.Version = a.SettingsText(cmd), a.Version
	log = f.logger(a)
	a.LogIgnored(log)
	return cfg, log, nil
}

// migrateFirst applies missing migrations.
func migrateFirst(ctx context.Context, dsn string) error {
	_, err := migrations.Up(ctx, dsn)
	if exit.Denied(err) { // the daemon's role lacks the right
		return exit.Usagef("%w: %s", err, exit.WhatToGrant(err, dsn, "dispatcherd migrate"))
	}
	return err
}

const (
	// pingsPerTimeout is how many pings a silent worker gets before it counts as dead,
	// so that one lost ping does not end a session.
	pingsPerTimeout = 3
	// frameSlack is the room in a frame of a worker beside the largest payload.
	frameSlack = 32 << 10
)

// config checks settings that depend on one another, and completes them.
func (f *serveFlags) config() (daemon.Config, error) {
	cfg := f.cfg
	cfg.Core.Seed = daemon.NewSeed()
	cfg.Core.Resume, cfg.Core.RemoteResume = cfg.Workers.Resume, cfg.Workers.RemoteResume
	cfg.Heartbeat = shell.Interval(cfg.Lease)
	cfg.Workers.HeartbeatInterval = cfg.Workers.HeartbeatTimeout / pingsPerTimeout
	cfg.Workers.MaxFrame = max(cfg.Workers.MaxFrame, cfg.API.MaxPayload+frameSlack)
	if err := cmp.Or(cfg.Allow.Check(), cfg.AllowAPI.Check(), cfg.Core.Validate(), cfg.CheckListeners()); err != nil {
		return cfg, exit.Usagef("%w", err)
	}
	if !cfg.AllowAPI.Empty() && cfg.API.Listen != "" && cfg.API.TokenFile == "" && cfg.TLS.ClientCA == "" {
		return cfg, exit.Usagef("--allow-api restricts only the API socket, and --api-listen %s admits all users of the host: add --api-tokens",
			cfg.API.Listen)
	}
	if absolute(cfg.WorkerSocket) == absolute(cfg.APISocket) {
		return cfg, exit.Usagef("--worker-socket and --api-socket are both %s: workers and callers speak different protocols, "+
			"give each a path of its own", cfg.WorkerSocket)
	}
	return cfg, nil
}

// logger makes the daemon's log on the error output.
func (f *serveFlags) logger(a *app) *zap.Logger {
	terminal := a.IsTerminal(a.Err)
	var enc zapcore.Encoder
	if f.format == "json" || f.format == "auto" && !terminal {
		cfg := zap.NewProductionEncoderConfig()
		cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		enc = zapcore.NewJSONEncoder(cfg)
	} else {
		cfg := zap.NewDevelopmentEncoderConfig()
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		if a.Env["NO_COLOR"] == "" && terminal {
			cfg.EncodeLevel = zapcore.CapitalColorLevelEncoder
		}
		enc = zapcore.NewConsoleEncoder(cfg)
	}
	level, _ := zapcore.ParseLevel(f.level) // the flag takes only levels
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(a.Err)), level))
}
