package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// probeCommand has a setting of each kind and prints nothing.
func probeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "probe", RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.Flags().Bool("probe-force", false, "")
	cli.OnlyOnCommandLine(cmd.Flags())
	a.DatabaseFlag(cmd.Flags())
	cmd.Flags().Int("probe-limit", 1, "")
	cli.Number(cmd.Flags(), new(time.Second), "probe-lease", "0s", cli.Longest, "")
	cmd.Flags().Bool("probe-loud", false, "")
	cmd.Flags().StringSlice("probe-types", nil, "")
	return cmd
}

// shownSetting is one line of `config show`.
type shownSetting struct{ Name, Value, Origin string }

// shown resolves the probe's settings and returns them by name.
func shown(t *testing.T, i invocation) (map[string]shownSetting, outcome) {
	t.Helper()
	i.extra = probeCommand
	i.args = append([]string{"config", "show", "probe", "-o", "json"}, i.args...)
	got := i.runs(t)
	var parsed struct {
		Settings []shownSetting `json:"settings"`
	}
	byName := map[string]shownSetting{}
	if got.code == exit.OK {
		require.NoError(t, json.Unmarshal([]byte(got.out), &parsed))
		for _, s := range parsed.Settings {
			byName[s.Name] = s
		}
	}
	return byName, got
}

func TestEnvironmentOverridesFileOverridesDefault(t *testing.T) {
	file := configFileWith(t, "probe_limit = 3\n[probe]\nlease = '5s'\nloud = true\ntypes = ['pdf', 'a']\n")
	got, _ := shown(t, invocation{
		args: []string{"--config", file},
		env:  map[string]string{"DISPATCHERD_PROBE_LIMIT": "2"},
	})
	require.Equal(t, shownSetting{"probe-limit", "2", "environment DISPATCHERD_PROBE_LIMIT"}, got["probe-limit"])
	require.Equal(t, shownSetting{"probe-lease", "5s", "file " + file}, got["probe-lease"])
	require.Equal(t, shownSetting{"probe-loud", "true", "file " + file}, got["probe-loud"])
	require.Equal(t, shownSetting{"probe-types", `[pdf,a]`, "file " + file}, got["probe-types"])
	require.Equal(t, shownSetting{"config", file, "flag --config"}, got["config"])
	require.Equal(t, shownSetting{"output", "json", "flag --output"}, got["output"])
	require.Equal(t, "default", got["database-url"].Origin)
	require.NotContains(t, got, "probe-force", "a flag that applies to one invocation is not a setting")
}

// The test covers every combination of the four sources.
func TestFlagOverridesEnvironmentOverridesFile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		given := map[string]bool{}
		for _, source := range []string{"flag", "environment", "second variable", "file"} {
			given[source] = rapid.Bool().Draw(rt, source)
		}
		args, env, text := []string{"tell"}, map[string]string{}, ""
		if given["flag"] {
			args = append(args, "--database-url", "host=flag user=u")
		}
		if given["environment"] {
			env["DISPATCHERD_DATABASE_URL"] = "host=environment user=u"
		}
		if given["second variable"] {
			env["DATABASE_URL"] = "host=second user=u"
		}
		if given["file"] {
			text = "database-url = 'host=file user=u'"
		}
		file := configFileWith(t, text)
		want := shownSetting{"database-url", "", "default"}
		switch {
		case given["flag"]:
			want = shownSetting{"database-url", "postgres://u@flag:5432/", "flag --database-url"}
		case given["environment"]:
			want = shownSetting{"database-url", "postgres://u@environment:5432/", "environment DISPATCHERD_DATABASE_URL"}
		case given["second variable"]:
			want = shownSetting{"database-url", "postgres://u@second:5432/", "environment DATABASE_URL"}
		case given["file"]:
			want = shownSetting{"database-url", "postgres://u@file:5432/", "file " + file}
		}
		var got shownSetting
		tell := func(a *app) *cobra.Command {
			cmd := &cobra.Command{Use: "tell", RunE: func(cmd *cobra.Command, _ []string) error {
				got = shownSetting{"database-url", dsn.Show(a.DSN), "default"}
				if cmd.Flags().Changed("database-url") {
					got.Origin = a.Origin("database-url")
				}
				return nil
			}}
			a.DatabaseFlag(cmd.Flags())
			return cmd
		}
		told := invocation{args: append(args, "--config", file), env: env, extra: tell}.runs(t)
		require.Equal(rt, exit.OK, told.code, told.err)
		require.Equal(rt, want, got)
	})
}

func TestErrorOfABadSettingNamesSourceAndNearestKey(t *testing.T) {
	cases := []struct{ file, env, want string }{
		{"prob-limit = 3", "", `there is no setting "prob-limit"; the nearest one is "probe-limit"`},
		{"[probe]\nleese = '5s'", "", `there is no setting "probe-leese"; the nearest one is "probe-lease"`},
		{"probe-force = true", "", `there is no setting "probe-force"; 'dispatcherd serve --help' lists`},
		{"config = 'x'", "", `there is no setting "config"; 'dispatcherd serve --help' lists`},
		{"probe-limit = 'many'", "", `bad value "many" for probe-limit: give a whole number`},
		{"probe-limit = 2026-01-02", "", `probe-limit: a toml.LocalDate is not allowed here`},
		{"probe-types = [['a']]", "", `probe-types: a []interface {} is not allowed here`},
		{"probe-limit = 1\nprobe_limit = 2", "", `probe-limit is given twice, with different spellings`},
		{"probe-limit = ", "", `is not TOML: line 1, column 14`},
		{"", "soon", `environment DISPATCHERD_PROBE_LEASE: bad value "soon" for probe-lease: give a duration such as`},
	}
	for _, c := range cases {
		file := configFileWith(t, c.file)
		env := map[string]string{}
		if c.env != "" {
			env["DISPATCHERD_PROBE_LEASE"] = c.env
		}
		_, got := shown(t, invocation{args: []string{"--config", file}, env: env})
		require.Equal(t, exit.Usage, got.code, c.want)
		require.Contains(t, got.err, c.want)
		if c.file != "" {
			require.Contains(t, got.err, file)
		}
	}
}

func TestFileMayContainSettingsOfOtherCommands(t *testing.T) {
	file := configFileWith(t, "probe-limit = 3")
	got := invocation{args: []string{"version", "--config", file}, extra: probeCommand}.runs(t)
	require.Equal(t, exit.OK, got.code, "a setting of another command must be accepted: %s", got.err)
}

func TestRequiredFlagMayComeFromTheEnvironment(t *testing.T) {
	needy := func(*app) *cobra.Command {
		cmd := &cobra.Command{Use: "needy", RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.Flags().String("needed", "", "")
		_ = cmd.MarkFlagRequired("needed")
		return cmd
	}
	got := invocation{args: []string{"needy"}, extra: needy}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, `required flag(s) "needed" not set`)
	got = invocation{args: []string{"needy"}, env: map[string]string{"DISPATCHERD_NEEDED": "x"}, extra: needy}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
}

func TestConfigShowMasksSecrets(t *testing.T) {
	got, _ := shown(t, invocation{env: map[string]string{"DATABASE_URL": "postgres://u:hunter2@h/d"}})
	require.Equal(t, "postgres://u:xxxxx@h:5432/d", got["database-url"].Value)
}

func TestOnlyCommandsThatUsePostgresHaveTheDatabaseURL(t *testing.T) {
	url := map[string]string{"DATABASE_URL": "postgres://u@h/d"}
	for command, shows := range map[string]bool{"serve": true, "dev": false, "job list": false, "migrate up": true, "trace export": true} {
		got := invocation{args: append([]string{"config", "show", "-o", "json"}, strings.Fields(command)...), env: url}.runs(t)
		require.Equal(t, exit.OK, got.code, got.err)
		require.Equal(t, shows, strings.Contains(got.out, "database-url"), command)

		a := bare(url)
		cmd, _, err := a.root().Find(strings.Fields(command))
		require.NoError(t, err)
		_ = cmd.InheritedFlags() // merges the root's flags into cmd.Flags()
		require.NoError(t, cmd.Flags().Set("config", ""))
		require.NoError(t, a.Resolve(cmd))
		require.Equal(t, shows, strings.Contains(string(a.SettingsText(cmd)), "database-url = postgres://u@h:5432/d"), command)
	}
}

// JSON replaces bytes that are not UTF-8, and Postgres refuses them. What follows -- belongs to another program.
func TestTextsThatAreNotUTF8AreRefused(t *testing.T) {
	probe := func(a *app) *cobra.Command {
		cmd := probeCommand(a)
		cmd.Args = cobra.ArbitraryArgs
		return cmd
	}
	for said, i := range map[string]invocation{
		`dispatcherd: flag --probe-types "[pdf,\xff]" is not UTF-8: give a text in UTF-8`: {args: []string{"probe", "--probe-types", "pdf,\xff"}},
		`dispatcherd: environment DISPATCHERD_PROBE_TYPES "[\xff]" is not UTF-8`: {args: []string{"probe"},
			env: map[string]string{"DISPATCHERD_PROBE_TYPES": "\xff"}},
		`dispatcherd: argument "a\xffb" is not UTF-8`: {args: []string{"probe", "a\xffb"}},
	} {
		i.extra = probe
		got := i.runs(t)
		require.Equal(t, exit.Usage, got.code)
		require.Contains(t, got.err, said)
	}
	got := invocation{args: []string{"probe", "--", "\xff"}, extra: probe}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
}
