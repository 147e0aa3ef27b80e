package settings

import (
	"io"
	"os"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
)

// Invocation is one invocation of the program, as its commands see it: streams,
// environment, and where the settings come from. Commands close over it.
type Invocation struct {
	console.Console
	Env     func(name string) (string, bool)
	Environ func() []string // all of it, NAME=value; nil = nothing is set
	UID     int             // of the user
	Version string          // of the running binary, as a line

	Database Database // --database-url
	ignored  []stranger
	origins  origins // where each setting of the running command comes from
}

// Origin tells where the value of a setting of the running command comes from.
func (a *Invocation) Origin(name string) string { return a.origins[name] }

// IsTerminal reports whether w is a terminal that moves its cursor: only there
// may a line be drawn over. Nothing is ever coloured, so NO_COLOR has its way.
func (a *Invocation) IsTerminal(w io.Writer) bool {
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
	term, _ := a.Env("TERM")
	return term != "dumb"
}
