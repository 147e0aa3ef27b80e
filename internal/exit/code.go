// Package exit defines the exit codes of the program, maps errors to them, and adds to error
// messages what the user can do next.
package exit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The exit codes. They are part of the interface; Meanings explains them.
const (
	OK          = 0
	Negative    = 1
	Usage       = 2
	NotFound    = 3
	Conflict    = 4
	Unavailable = 5
	Interrupted = 130
	Internal    = 255
)

// Meanings describes the exit codes in help texts and docs/reference/cli.md.
var Meanings = []struct {
	Code    int
	Meaning string
}{
	{OK, "done"},
	{Negative, "a job or a check failed; nothing was changed, because the consent (--yes) is missing"},
	{Usage, "the command line, a setting or the input is wrong"},
	{NotFound, "the named object does not exist"},
	{Conflict, "the state of the object forbids the request; a worker was refused"},
	{Conflict, "--count differs from what the filter selects; a socket or data folder is in use"},
	{Unavailable, "Postgres or the dispatcher does not answer"},
	{Interrupted, "stopped by a signal before the end"},
	{Internal, "anything else"},
}

// Error is an error with its exit code.
type Error struct {
	Code int
	err  error
}

// Error is the message alone.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the error that the message was made from.
func (e *Error) Unwrap() error { return e.err }

// Errorf makes an error with an exit code; format is as for fmt.Errorf.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, err: fmt.Errorf(format, args...)}
}

// Usagef makes an error with the exit code Usage.
func Usagef(format string, args ...any) error { return Errorf(Usage, format, args...) }

// CodeOf returns the code for an error that ended a command with context ctx.
func CodeOf(ctx context.Context, err error) int {
	coded, ok := errors.AsType[*Error](err)
	switch {
	case ok:
		return coded.Code
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return Interrupted
	case errors.Is(err, claim.ErrTransactionPool), is[*devpg.DirError](err), Denied(err):
		return Usage
	case is[*devpg.InUseError](err), is[*workerproto.Error](err):
		return Conflict
	case errors.Is(err, devpg.ErrMissing), is[*migrations.VersionError](err), Unreachable(err), noSchema(err):
		return Unavailable
	}
	return Internal
}

// Unreachable reports whether Postgres could not be reached, or does not accept requests now.
func Unreachable(err error) bool {
	if is[*pgconn.ConnectError](err) || is[*net.OpError](err) {
		return true
	}
	pg := dsn.ErrorOf(err)
	return dsn.Cured(pg) || strings.HasPrefix(pg.Code, "53") // out of resources
}

// is reports whether an error contains one of a type.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// noSchema reports whether the database lacks the tables.
func noSchema(err error) bool {
	pg := dsn.ErrorOf(err)
	return (pg.Code == "42P01" || pg.Code == "3F000") && strings.Contains(pg.Message, "dispatcherd")
}

// Once removes lines that repeat an earlier one. A driver that tries an address with TLS and
// then without TLS reports the same error twice.
func Once(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 2 { // the attempt, and its one error
		return lines[0] + " " + strings.TrimSpace(lines[1])
	}
	return strings.Join(lines, "\n")
}

// Explain returns the message of an error, with the next step where it is known.
func Explain(err error) string {
	switch {
	case is[*Error](err):
		return err.Error() // the message already says what to do
	case noSchema(err):
		return "the database has no dispatcherd schema yet; create it with 'dispatcherd migrate up' (" + err.Error() + ")"
	case dsn.ReadOnly(err):
		return strings.ReplaceAll(Once(err.Error()), "ValidateConnect failed: ", "") + ": promote a standby or reset the setting"
	case Unreachable(err):
		return Once(err.Error()) + ": check that Postgres runs and --database-url is right ('dispatcherd config show --origin')"
	}
	return err.Error()
}

// Denied reports whether Postgres rejected a statement because a role lacks a right.
func Denied(err error) bool { return claim.AnswerCode(err) == "42501" }

// rightsOf names the least role that a group of commands needs; the first match counts. See docs/explanation/security.md.
var rightsOf = []struct{ command, role string }{
	{"dispatcherd serve", "dispatcherd_dispatcher"},
	{"dispatcherd trace", "dispatcherd_reader"},
}

// WrongOwner reports whether Postgres rejected a statement because of the setting dispatcherd.owner.
func WrongOwner(err error) bool { return dsn.ErrorOf(err).ConstraintName == contract.OwnerRule }

// WhatToGrant says which role lacks a right that a command needs, and which statement grants it.
func WhatToGrant(err error, database, command string) string {
	if WrongOwner(err) {
		return contract.CorrectOwner
	}
	user := "…"
	if c, err := dsn.Parse(database); err == nil {
		user = fmt.Sprintf("%q", c.ConnConfig.User)
	}
	grant := "use the owner of the schema"
	for _, r := range rightsOf {
		if strings.HasPrefix(command, r.command) {
			grant = fmt.Sprintf("let an administrator run 'GRANT %s TO %s;', or name another role", r.role, user)
			break
		}
	}
	return fmt.Sprintf("the role %s of --database-url lacks this right; %s (docs/explanation/security.md, \"Postgres roles\")", user, grant)
}
