package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // a second signal ends the process at once, from before anybody hears of the first
		cancel()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program: it carries out one command line and returns the
// exit code. Canceling ctx is the request to stop.
func run(ctx context.Context, args []string, in io.Reader, out, err io.Writer) int {
	a := &app{in: in, out: out, err: err, env: os.LookupEnv, environ: os.Environ, uid: os.Geteuid()}
	return a.run(ctx, args)
}
