package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/migrations"
)

func (a *app) devCommand() *cobra.Command {
	var f serveFlags
	var dir string
	var ephemeral, tls bool
	cmd := cli.New("dev", "Run the dispatcher with a private Postgres of its own", `  dispatcherd dev
  dispatcherd dev --ephemeral --worker-socket /tmp/demo/worker.sock --api-socket /tmp/demo/api.sock`,
		`Runs the dispatcher with a private Postgres, without Docker, port or password, also as root.
Needs the programs of Postgres 14 or newer on this machine. Keeps the data between runs, except
with --ephemeral. The server ends with the dispatcher, also after kill -9. With --tls, workers
on other hosts can connect: dev prints the commands for them. Its certificate and token are in
the state directory of the user, or in DIR-tls with --data-dir DIR. Only this user can read
them.`)
	cmd.Annotations = map[string]string{cli.NoteLogs: "yes"}
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		given := dir
		switch {
		case ephemeral && dir != "":
			return exit.Usagef("--ephemeral would delete the data in --data-dir (%s, %s): give one of the two", dir,
				a.Origin("data-dir"))
		case !ephemeral && dir == "":
			state, err := a.UserState()
			if err != nil {
				return fmt.Errorf("no place for the data: %w; give --data-dir", err)
			}
			dir = filepath.Join(state, "postgres")
		}
		var files devFiles
		if tls {
			if files, err = a.prepareTLS(&f.cfg, given); err != nil {
				return err
			}
		}
		cfg, log, err := f.start(a, cmd)
		if err != nil {
			return err
		}
		say := func() {
			a.sayHowToConnect(&cfg)
			if tls {
				a.sayHowToJoin(files, cfg.WorkerListen)
			}
		}
		return a.dev(cmd.Context(), &cfg, log, devpg.Options{Dir: dir, Ephemeral: ephemeral}, say)
	}
	f.register(a, cmd.Flags())
	cmd.Flags().StringVar(&dir, "data-dir", "", "directory of the data (default: in the state directory of the user)")
	cmd.Flags().BoolVar(&tls, "tls", false, "accept workers of other hosts, on :7411 unless --worker-listen says otherwise")
	cmd.Flags().BoolVar(&ephemeral, "ephemeral", false, "delete the data at the end")
	return cmd
}

// sayHowToConnect prints lines to paste into another terminal. Their paths are absolute, so they
// work in every working directory. An error of the output does not stop the daemon.
func (a *app) sayHowToConnect(cfg *daemon.Config) {
	fmt.Fprintf(a.Out, "export DATABASE_URL=%s\nexport DISPATCHERD_WORKER_SOCKET=%s\nexport DISPATCHERD_API_SOCKET=%s\n",
		quoted(cfg.DSN), quoted(absolute(cfg.WorkerSocket)), quoted(absolute(cfg.APISocket)))
}

// absolute returns the absolute form of a path, or the path if the working directory is gone.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// quoted quotes a text for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// dev runs the server and the daemon until the context, the server or the
// daemon ends.
func (a *app) dev(ctx context.Context, cfg *daemon.Config, log *zap.Logger, o devpg.Options, ready func()) (err error) {
	if err := daemon.OpenSockets(cfg); err != nil {
		return err
	}
	defer daemon.CloseSockets(cfg)
	pg, err := devpg.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	cfg.DSN = pg.URL("postgres")
	if _, err := migrations.Up(ctx, cfg.DSN); err != nil {
		return err
	}
	d, err := daemon.Start(ctx, *cfg, log)
	if err != nil {
		return err
	}
	ready()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-pg.Done():
			d.Lose(
				exit.Errorf(exit.Unavailable,
					"the private Postgres, process %d, has ended, and the dispatcher cannot continue without it: start dev again",
					pg.PID()),
			)
		case <-over:
		}
	}()
	return d.Run(ctx)
}
