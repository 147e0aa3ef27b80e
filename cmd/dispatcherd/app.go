package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// app is one invocation of the program: what it reads and writes, and what the
// root flags say. Commands close over it.
type app struct {
	in       io.Reader
	out, err io.Writer // data; messages
	env      func(name string) (string, bool)
	environ  func() []string // all of it, NAME=value; nil = nothing is set
	uid      int             // of the user

	format   format // --output
	ignored  []stranger
	origins  origins  // where each setting of the running command comes from
	running  bool     // a RunE was reached: the command line as such is sound
	database database // --database-url
	noHelp   error    // help was asked for with words that are no command
}

// run carries out one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(requestIDsLast(args))
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.noHelp
	}
	if err == nil {
		return exitOK
	}
	code := a.exitCode(ctx, err)
	a.report(cmd, code, err)
	return code
}

// report says what went wrong and what to do.
func (a *app) report(cmd *cobra.Command, code int, err error) {
	text := explain(err)
	if _, said := errors.AsType[*codedError](err); denied(err) && !said {
		text = err.Error() + ": " + whatToGrant(a.database.dsn, cmd.CommandPath())
	}
	fmt.Fprintf(a.err, "dispatcherd: %s\n", text)
	if code == exitUsage && !denied(err) {
		fmt.Fprintf(a.err, "See '%s --help'.\n", cmd.CommandPath())
	}
}

// say writes a message for the human, apart from the data.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }

// isTerminal reports whether w is a terminal that moves its cursor: only there
// may a line be drawn over. Nothing is ever coloured, so NO_COLOR has its way.
func (a *app) isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return false
	}
	term, _ := a.env("TERM")
	return term != "dumb"
}
