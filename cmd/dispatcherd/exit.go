package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The exit codes. They are part of the interface; exitMeanings explains them.
const (
	exitOK          = 0
	exitNegative    = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
	exitInterrupted = 130
	exitInternal    = 255
)

// exitMeanings is for help texts and docs/cli.md.
var exitMeanings = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitNegative, "the answer is no: a job failed, a check did not hold"},
	{exitUsage, "the command line, a setting or the input is wrong"},
	{exitNotFound, "what was named does not exist"},
	{exitConflict, "it exists, in a state that forbids the request; a worker was refused; a socket or data folder is in use"},
	{exitUnavailable, "Postgres, or the dispatcher, or another part that is needed, does not answer"},
	{exitInterrupted, "stopped by a signal before the end"},
	{exitInternal, "anything else"},
}

// codedError is an error that knows its exit code.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// failure makes an error with an exit code; format is as for fmt.Errorf.
func failure(code int, format string, args ...any) error {
	return &codedError{code: code, err: fmt.Errorf(format, args...)}
}

// exitCode finds the code for an error that ended a command.
func (a *app) exitCode(ctx context.Context, err error) int {
	var coded *codedError
	var inUse *devpg.InUseError
	var version *migrations.VersionError
	var status *claim.StatusError
	var refused *workerproto.Error
	switch {
	case errors.As(err, &coded):
		return coded.code
	case !a.running:
		return exitUsage // cobra's own: unknown command, flag or argument
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, claim.ErrTransactionPool), denied(err):
		return exitUsage
	case errors.Is(err, claim.ErrNotFound):
		return exitNotFound
	case errors.As(err, &inUse), errors.As(err, &status), errors.As(err, &refused):
		return exitConflict
	case errors.Is(err, devpg.ErrMissing), errors.As(err, &version), unreachable(err), noSchema(err):
		return exitUnavailable
	}
	return exitInternal
}

// unreachable reports whether Postgres could not be asked, or is not taking
// requests now.
func unreachable(err error) bool {
	var connect *pgconn.ConnectError
	var network *net.OpError
	if errors.As(err, &connect) || errors.As(err, &network) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	for _, class := range []string{"08", "53", "57P"} { // connection lost, out of resources, shutting down
		if strings.HasPrefix(pg.Code, class) {
			return true
		}
	}
	return false
}

// noSchema reports whether the database lacks the tables.
func noSchema(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") && strings.Contains(pg.Message, "dispatcherd")
}

// once leaves out lines that repeat an earlier one: a driver that tries an address
// with TLS and without says twice that nobody is there.
func once(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 2 { // what was tried, and the one thing that came of it
		return lines[0] + " " + strings.TrimSpace(lines[1])
	}
	return strings.Join(lines, "\n")
}

// whatBecameOfIt is what may be the matter with an id.
const whatBecameOfIt = "it was never inserted, or is kept no longer (--keep-done, --keep-failed and --keep-cancelled of serve)"

// explain is the message of an error, with the next step where it is known.
func explain(err error) string {
	var coded *codedError
	switch {
	case errors.As(err, &coded):
		return err.Error() // who made it knew what went wrong, and has said what to do
	case noSchema(err):
		return err.Error() + ": the database has no dispatcherd schema yet; create it with 'dispatcherd migrate up'"
	case errors.Is(err, claim.ErrNotFound):
		return err.Error() + ": " + whatBecameOfIt
	case unreachable(err):
		return once(err.Error()) + ": check that Postgres runs and --database-url is right ('dispatcherd config show --origin')"
	}
	return err.Error()
}
