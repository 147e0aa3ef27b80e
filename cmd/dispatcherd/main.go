package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // time zones for a host that has none

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // before ctx is canceled, so that a second signal always ends the process
		cancel()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program: it executes one command line and returns the exit code. Canceling
// ctx stops it.
func run(ctx context.Context, args []string, in io.Reader, out, err io.Writer) int {
	a := &app{Invocation: settings.Invocation{
		Console: console.Console{In: in, Out: out, Err: err},
		Env:     os.LookupEnv, Environ: os.Environ, UID: os.Geteuid(), Version: readVersion().String(),
	}}
	return a.run(ctx, args)
}
