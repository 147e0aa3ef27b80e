package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// shownSetting is one line of `config show`.
type shownSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// ConfigCommand is the group of commands about settings.
func (a *Invocation) ConfigCommand() *cobra.Command {
	return Group("config", "Show the configuration", a.configShowCommand())
}

func (a *Invocation) configShowCommand() *cobra.Command {
	var origin bool
	cmd := New("show [COMMAND…]", "Print the settings of a command and their sources",
		"  dispatcherd config show --origin\n  dispatcherd config show worker run -o json",
		`Prints the settings that a command would run with (default: serve), secrets masked.

A flag overrides the environment, which overrides the file, which overrides the
default. The key in the file is the name of the flag; a table [keep] with the key
done sets keep-done. The tables [allow], [allow-api] and [timeout] have a key for each
type, [weights] for each weight. An unknown key is an error of every command. An unknown
variable DISPATCHERD_… is an error here; other commands report and ignore it.`)
	cmd.Annotations = map[string]string{NoteLogs: "config show fails instead"}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		settings, err := a.settingsOf(cmd, args)
		if err != nil {
			return err
		}
		columns, header := 2, "setting, value"
		if origin {
			columns, header = 3, header+", origin"
		}
		return PrintRows(a, "settings", settings, header, func(s *shownSetting) []any {
			return []any{s.Name, s.Value, s.Origin}[:columns]
		})
	}
	cmd.Flags().BoolVar(&origin, "origin", false, "print the source of each value")
	OnlyOnCommandLine(cmd.Flags())
	return cmd
}

// settingsOf resolves the settings of the named command as if it ran with the flags of the
// root only.
func (a *Invocation) settingsOf(show *cobra.Command, path []string) ([]shownSetting, error) {
	if len(path) == 0 {
		path = []string{"serve"}
	}
	target, rest, err := show.Root().Find(path)
	if err != nil || len(rest) > 0 {
		return nil, exit.Usagef("there is no command %q whose settings could be shown: 'dispatcherd --help' lists the commands",
			strings.Join(path, " "))
	}
	if len(a.ignored) > 0 {
		return nil, exit.Usagef("%s", a.ignored[0])
	}
	_ = target.InheritedFlags() // merges the root's flags into target.Flags()
	if err := a.Resolve(target); err != nil {
		return nil, err
	}
	return a.settingsIn(target), nil
}

// settingsIn lists the resolved settings that the command uses, by name, secrets masked.
func (a *Invocation) settingsIn(cmd *cobra.Command) []shownSetting {
	var settings []shownSetting
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if isSetting(f) {
			origin := "default"
			if f.Changed {
				origin = a.Origin(f.Name)
			}
			settings = append(settings, shownSetting{f.Name, f.Value.String(), origin})
		}
	})
	slices.SortFunc(settings, func(x, y shownSetting) int { return strings.Compare(x.Name, y.Name) })
	return settings
}

// SettingsText returns the settings of a command for a debug bundle.
func (a *Invocation) SettingsText(cmd *cobra.Command) []byte {
	var text bytes.Buffer
	for _, s := range a.settingsIn(cmd) {
		fmt.Fprintf(&text, "%s = %s (%s)\n", s.Name, OneLine(s.Value), s.Origin)
	}
	return text.Bytes()
}
