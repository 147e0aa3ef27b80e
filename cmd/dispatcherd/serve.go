package main

import (
	"crypto/rand"
	"encoding/binary"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// Defaults of daemonConfig.
const (
	defaultLease  = 10 * time.Second
	defaultBeat   = time.Second
	defaultGrace  = 30 * time.Second
	defaultResume = 30 * time.Second

	// defaultLookout is somewhat more than what a worker takes that is woken,
	// answers at once, and is seen to have done so.
	defaultLookout = 60 * time.Microsecond

	defaultKeepDone   = 7 * 24 * time.Hour
	defaultKeepFailed = 30 * 24 * time.Hour
)

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	var migrate bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the dispatcher on your Postgres", Args: settings.NoArguments, Annotations: map[string]string{settings.NoteLogs: "yes"},
		Long: `Runs the dispatcher until it is told to stop (SIGINT or SIGTERM): it then takes no new
work, lets running jobs end within --grace, and leaves the rest to their workers, which bring them along to
the next dispatcher on the socket within --resume. A second signal ends it at once; nothing is lost by that
either: a dispatcher that is started within the lease goes on with the jobs, later others start them anew.
SIGHUP has it read the file of --api-tokens anew; nothing else is reloaded.`,
		Example: `  dispatcherd serve --database-url postgres://dispatcherd@db/app --migrate
  DATABASE_URL=postgres://… dispatcherd serve --worker-socket /run/dispatcherd/worker.sock
  dispatcherd serve --weight-ageing 32          # a priority unit is worth 32 s of waiting instead of 64`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP) // from the beginning: unheard it would end the process
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
			a.LogStrangers(log)
			cfg.Settings = a.SettingsText(cmd.Flags())
			cfg.Supervisor, cfg.Reload = supervisorOf(a.Env), hangups
			if cfg.Inherited, err = inheritedSockets(a.Env); err != nil {
				return exit.Errorf(exit.Usage, "%w", err)
			}
			if migrate {
				_, err := migrations.Up(cmd.Context(), cfg.DSN)
				if exit.Denied(err) { // the daemon's own role is not enough for that
					return exit.Errorf(exit.Usage, "%w: %s", err, exit.WhatToGrant(cfg.DSN, "dispatcherd migrate"))
				}
				if err != nil {
					return err
				}
			}
			d, err := startDaemon(cmd.Context(), cfg, log)
			if err != nil {
				return err
			}
			return d.run(cmd.Context())
		},
	}
	f.register(a, cmd.Flags())
	cmd.Flags().BoolVar(&migrate, "migrate", false, "bring the schema up to date first")
	return cmd
}

// newSeed is fresh randomness for tokens and jitter.
func newSeed() (seed [2]uint64) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	seed[0], seed[1] = binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
	return seed
}
