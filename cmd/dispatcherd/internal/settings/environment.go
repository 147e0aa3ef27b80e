package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

const variablePrefix = "DISPATCHERD_"

// otherVariables begin like settings but are not: `worker run` sets some for its programs, and
// the tests of this project read others.
var otherVariables = []string{"DISPATCHERD_ATTEMPT", "DISPATCHERD_JOB_ID", "DISPATCHERD_TEST_DATABASE_URL", "DISPATCHERD_TRACES", "DISPATCHERD_TYPE"}

// maxStrangers bounds how many variables are reported.
const maxStrangers = 10

// stranger is a variable that looks like a setting, is none, and is ignored.
type stranger struct{ name, nearest string } // nearest may be empty

func (s stranger) String() string {
	if s.nearest == "" {
		return "there is no setting for the environment variable " + s.name
	}
	return fmt.Sprintf("there is no setting for the environment variable %s; the nearest one is %s", s.name, s.nearest)
}

// strangers lists the first of them by name. An unknown key in the file is an error. An
// unknown variable may belong to another program (Kubernetes sets DISPATCHERD_SERVICE_HOST
// for a service of that name), so all commands except `config show` only report that they
// ignore it. Values may be secrets and are not printed.
func (a *Invocation) strangers(root *cobra.Command) []stranger {
	var found []stranger
	var known []string
	for _, name := range a.environment() {
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(otherVariables, name) {
			continue
		}
		if known == nil {
			known = settingVariables(root)
		}
		if _, ok := slices.BinarySearch(known, name); !ok {
			found = append(found, stranger{name: console.OneLine(jsontext.Excerpt(name)), nearest: nearest(name[:min(len(name), 100)], known)})
		}
	}
	slices.SortFunc(found, func(x, y stranger) int { return strings.Compare(x.name, y.name) })
	return found[:min(len(found), maxStrangers)]
}

// environment returns the names of all variables.
func (a *Invocation) environment() []string {
	if a.Environ == nil {
		return nil
	}
	all := a.Environ()
	names := make([]string, len(all))
	for i, pair := range all {
		names[i], _, _ = strings.Cut(pair, "=")
	}
	return names
}

// settingVariables lists the variables of all commands, because one environment may serve all
// of them, as one file does.
func settingVariables(root *cobra.Command) []string {
	var names []string
	for _, f := range settings(root) {
		names = append(names, variables(f)[0])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NoteLogs marks a command that reports ignored variables in its own way.
const NoteLogs = "dispatcherd-logs"

// SayStrangers reports ignored variables before the command begins.
func (a *Invocation) SayStrangers(cmd *cobra.Command) {
	a.ignored = a.strangers(cmd.Root())
	if cmd.Annotations[NoteLogs] != "" {
		return
	}
	for _, s := range a.ignored {
		a.Say("dispatcherd: %v: it is ignored", s)
	}
}

// LogStrangers does the same in the log of a daemon.
func (a *Invocation) LogStrangers(log *zap.Logger) {
	for _, s := range a.ignored {
		near := zap.Skip()
		if s.nearest != "" {
			near = zap.String("nearest", s.nearest)
		}
		log.Warn("an environment variable is no setting and is ignored", zap.String("variable", s.name), near)
	}
}
