package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program: it carries out one command line and returns the
// exit code. Canceling ctx is the request to stop.
func run(ctx context.Context, args []string, in io.Reader, out, err io.Writer) int {
	a := &app{in: in, out: out, err: err, env: os.LookupEnv, uid: os.Geteuid()}
	return a.run(ctx, args)
}
