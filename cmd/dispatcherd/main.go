package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // time zones for a host that has none

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// outliveLog makes writes to an output fail if its reader has ended. Without it such a write ends this process with SIGPIPE, and its jobs
// with it. Programs that this process starts are not affected.
func outliveLog() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// run is the whole program: it executes one command line and returns the exit code. Canceling
// ctx stops it.
func run(ctx context.Context, args []string, in io.Reader, out, err io.Writer) int {
	a := &app{Invocation: cli.Invocation{
		Console: cli.Console{In: in, Out: out, Err: err},
		Env:     map[string]string{}, UID: os.Geteuid(), Version: readVersion().String(),
	}}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		a.Env[name] = value
	}
	return a.run(ctx, args)
}

// app is one invocation of the program, with state that only the root command needs.
type app struct {
	cli.Invocation
	running bool  // the command line is valid
	noHelp  error // help was requested for an unknown command
}

// run executes one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(cli.RequestIDsLast(args))
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.noHelp
	}
	if err == nil {
		return exit.OK
	}
	if code, ended := errors.AsType[childError](err); ended {
		return int(code)
	}
	code := a.exitCode(ctx, err)
	a.report(cmd, code, err)
	return code
}

// report prints what went wrong and what to do.
func (a *app) report(cmd *cobra.Command, code int, err error) {
	text := exit.Explain(err)
	if _, said := errors.AsType[*exit.Error](err); exit.Denied(err) && !said {
		text = err.Error() + ": " + exit.WhatToGrant(err, a.DSN, cmd.CommandPath())
	}
	a.Say("dispatcherd: %s", text)
	if code == exit.Usage && !exit.Denied(err) {
		fmt.Fprintf(a.Err, "See '%s --help'.\n", cmd.CommandPath())
	}
}

// exitCode returns the exit code for an error that ended a command.
func (a *app) exitCode(ctx context.Context, err error) int {
	if _, coded := errors.AsType[*exit.Error](err); !coded && !a.running {
		return exit.Usage // an error of cobra: unknown command, flag or argument
	}
	return exit.CodeOf(ctx, err)
}
