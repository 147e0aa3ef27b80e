package cli

import (
	"fmt"
	"os"
	"slices"
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
	origins map[string]string // the source of the value of each flag of the running command, by name
}

// Origin returns the source of a setting of the running command.
func (a *Invocation) Origin(name string) string { return a.origins[name] }

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
func (a *Invocation) Agree(what, flag string) error {
	switch {
	case !a.IsTerminal(a.In) || !a.IsTerminal(a.Err):
		return exit.Errorf(exit.Negative, "nothing was changed. This would %s. Add %s to do it", what, flag)
	case !a.confirm(fmt.Sprintf("This will %s.", what)):
		return exit.Errorf(exit.Negative, "nothing was changed")
	}
	return nil
}

// confirm asks the user. Only y and yes agree.
func (a *Invocation) confirm(what string) bool {
	fmt.Fprintf(a.Err, "%s Continue? [y/N] ", what)
	var answer string
	_, _ = fmt.Fscanln(a.In, &answer) // without an answer it stays empty
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(answer))
}
