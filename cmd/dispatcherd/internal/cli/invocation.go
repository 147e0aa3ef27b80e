package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Invocation is one invocation of the program for its commands: streams, environment, and the
// sources of the settings.
type Invocation struct {
	Console
	Env     map[string]string // the environment
	UID     int               // of the user
	Version string            // of the running binary, as a line

	DSN     string            // --database-url
	API     Dispatcher        // --api-socket, --api, --api-token
	client  *client.Client    // of API; set while a command uses it
	ignored []string          // unknown variables
	origins map[string]string // the source of the value of each setting that the command line omits, by name
}

// Origin returns the source of a value that the running command was given.
func (a *Invocation) Origin(name string) string { return cmp.Or(a.origins[name], "flag --"+name) }

// IsTerminal reports whether a stream is a terminal that moves its cursor, so that a line can
// be redrawn. The output has no colours, so NO_COLOR is always honoured.
func (a *Invocation) IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false
	}
	return a.Env["TERM"] != "dumb"
}

// Agree returns an error unless the user agrees on a terminal to what a command will do. Without a
// terminal the error names the flag that agrees.
func (a *Invocation) Agree(ctx context.Context, what, flag string) error {
	if !a.IsTerminal(a.In) || !a.IsTerminal(a.Err) {
		return exit.Errorf(exit.Negative, "nothing was changed. This would %s. Add %s to do it", what, flag)
	}
	return a.confirm(ctx, fmt.Sprintf("This will %s.", what))
}

// confirm asks the user. Only y and yes agree. An interrupt ends the wait for the answer.
func (a *Invocation) confirm(ctx context.Context, what string) error {
	fmt.Fprintf(a.Err, "%s Continue? [y/N] ", what)
	answers := make(chan string, 1)
	go func() {
		var answer string
		_, _ = fmt.Fscanln(a.In, &answer) // without an answer it stays empty
		answers <- strings.ToLower(answer)
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return exit.Errorf(exit.Interrupted, "nothing was changed")
	}
	return exit.Errorf(exit.Negative, "nothing was changed")
}
