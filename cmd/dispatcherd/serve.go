package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/migrations"
)

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	var migrate bool
	cmd := &cobra.Command{
		Use:         "serve",
		Short:       "Run the dispatcher on your Postgres",
		Annotations: map[string]string{settings.NoteLogs: "yes"},
		Long: `Runs the dispatcher until SIGINT or SIGTERM. Then it starts no more jobs and waits up to
--grace for running jobs. Workers keep the remaining jobs for --resume, and resume them with the next dispatcher
on the socket. A second signal ends the dispatcher at once, as kill -9 does. No job is lost: a dispatcher
that starts on the same socket of the same host takes the jobs over at once, others after --lease.
SIGHUP reloads only the file of --api-tokens.`,
		Example: `  dispatcherd serve --database-url postgres://dispatcherd@db/app --migrate
  DATABASE_URL=postgres://… dispatcherd serve --worker-socket /run/dispatcherd/worker.sock
  dispatcherd serve --weights ageing=32         # a priority unit is worth 32 s of waiting instead of 64`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP) // first: an unhandled SIGHUP ends the process
			defer signal.Stop(hangups)
			cfg, err := f.config()
			if err != nil {
				return err
			}
			if cfg.DSN, err = a.DatabaseURL(); err != nil {
				return err
			}
			log, err := f.logger(a)
			if err != nil {
				return err
			}
			a.LogIgnored(log)
			cfg.Settings, cfg.Version = a.SettingsText(cmd), a.Version
			cfg.Supervisor, cfg.Reload = daemon.SupervisorOf(a.Env), hangups
			if cfg.Inherited, err = daemon.InheritedSockets(a.Env); err != nil {
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
		},
	}
	f.register(a, cmd.Flags())
	settings.Grouped(cmd.Flags(), "Postgres", func(flags *pflag.FlagSet) {
		a.DatabaseFlag(flags)
		flags.BoolVar(&migrate, "migrate", false, "apply missing migrations first")
	})
	return cmd
}

// migrateFirst applies missing migrations.
func migrateFirst(ctx context.Context, dsn string) error {
	_, err := migrations.Up(ctx, dsn)
	if exit.Denied(err) { // the daemon's role lacks the right
		return exit.Usagef("%w: %s", err, exit.WhatToGrant(dsn, "dispatcherd migrate"))
	}
	return err
}
