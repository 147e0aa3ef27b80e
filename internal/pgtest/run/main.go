// Run starts a Postgres server for one run of the tests, executes a command
// that uses it, and stops the server:
//
//	go run ./internal/pgtest/run go test ./...
//
// Its exit code is that of the command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		code := 1
		if e, ok := errors.AsType[*exec.ExitError](err); ok && e.Exited() {
			code = e.ExitCode()
		} else {
			fmt.Fprintln(os.Stderr, "run:", err)
		}
		os.Exit(code)
	}
}

func run(command []string) error {
	if len(command) == 0 {
		return errors.New("name a command")
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt) // the command gets Ctrl-C as well; the server stops when it has ended
	url, stop, err := pgtest.Share(context.Background())
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), pgtest.Variable+"="+url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return errors.Join(cmd.Run(), stop())
}
