package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

const variablePrefix = "DISPATCHERD_"

// otherVariables begin like the variables of settings, but name no settings. `worker
// run` sets some of them for its programs. The tests of this project read others.
var otherVariables = []string{
	"DISPATCHERD_ATTEMPT",
	"DISPATCHERD_FENCE",
	"DISPATCHERD_JOB_ID",
	"DISPATCHERD_JOB_TOKEN",
	"DISPATCHERD_TEST_DATABASE_URL",
	"DISPATCHERD_TRACES",
	"DISPATCHERD_TYPE",
}

// maxUnknown bounds how many unknown variables are reported.
const maxUnknown = 10

// variable returns the environment variable of a setting.
func variable(setting string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// variables returns the environment variables of a flag, by descending precedence.
func variables(f *pflag.Flag) []string {
	if f.Name == "database-url" {
		return []string{variable(f.Name), "DATABASE_URL"}
	}
	return []string{variable(f.Name)}
}

// unknownVariables describes, in alphabetical order, the first variables that look
// like settings but are not. An unknown key in the file is an error. An unknown
// variable may belong to another program (Kubernetes sets DISPATCHERD_SERVICE_HOST
// for a service of that name), so all commands except `config show` only report
// that they ignore it. Values may be secrets and are not printed.
func (a *Invocation) unknownVariables(root *cobra.Command) []string {
	known := settingNames(root)
	for i, name := range known {
		known[i] = variable(name)
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(otherVariables, name) || slices.Contains(known, name) ||
			len(unknown) == maxUnknown {
			continue
		}
		text := "there is no setting for the environment variable " + OneLine(jsontext.Excerpt(name))
		if near := Nearest(name[:min(len(name), 100)], known); near != "" {
			text += "; the nearest one is " + near
		}
		unknown = append(unknown, text)
	}
	return unknown
}

// NoteLogs marks a command that reports ignored variables itself.
const NoteLogs = "dispatcherd-logs"

// SayIgnored reports ignored variables before the command begins.
func (a *Invocation) SayIgnored(cmd *cobra.Command) {
	a.ignored = a.unknownVariables(cmd.Root())
	if cmd.Annotations[NoteLogs] != "" {
		return
	}
	for _, text := range a.ignored {
		a.Say("dispatcherd: %s: it is ignored", text)
	}
}

// LogIgnored reports ignored variables in the log of a daemon.
func (a *Invocation) LogIgnored(log *zap.Logger) {
	for _, text := range a.ignored {
		log.Warn(text + ": it is ignored")
	}
}
