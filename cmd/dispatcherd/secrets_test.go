package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// No command prints the password of the connection string, whatever error the
// string or the server causes.
func TestNoCommandPrintsThePassword(t *testing.T) {
	const secret = "hunter2S3CRET"
	lines := []string{
		"config show",
		"config show -o json",
		"config show job list --origin",
		"migrate up",
		"migrate status",
		"migrate down",
		"job list",
		"job get 1",
		"job insert --type x",
		"job retry 1",
		"job cancel 1",
		"trace export /does/not/matter --slots-of /does/not/exist",
		"serve --log-level debug --log-format json",
	}
	dir := t.TempDir()
	for _, dsn := range []string{
		"postgres://u:" + secret + "@/d?host=/does/not/exist",
		"postgres://u:" + secret + "@h:port/d",
		"postgres://u:" + secret + "%zz@h/d",
		"postgres://h/d?host=/does/not/exist&user=u&password=" + secret,
		"postgres://u:" + secret + "@h/d?sslmode=nonsense",
		"host=/does/not/exist user=u password=" + secret,
		"host=/does/not/exist user=u password='" + secret + "' port=x",
		"password=" + secret + " nonsense",
		"host=h password = " + secret + " sslmode=nonsense",
		`password=a\ ` + secret + " sslmode=nonsense",
		"postgres://u:a@" + secret + "@h/d",
		"postgres://u:1/" + secret + "@h/d",
		"host=/does/not/exist user=u pasword=" + secret,
		secret + "://u@h/d",
		"host=/does/not/exist sslmode=disable user=u passfile=/does/not/exist password=" + secret,
	} {
		for _, line := range lines {
			for name, i := range map[string]invocation{
				"environment": {args: strings.Fields(line), env: map[string]string{"DATABASE_URL": dsn}},
				"file":        {args: append(strings.Fields(line), "--config", configFileWith(t, "database-url = '''"+dsn+"'''\n"))},
				"flag":        {args: append(strings.Fields(line), "--database-url", dsn)},
				"a bad flag":  {args: append(strings.Fields(line), "--database-url", dsn, "--no-such-flag")},
			} {
				if strings.HasPrefix(line, "serve") {
					i.args = append(i.args, "--worker-socket", filepath.Join(dir, "w"), "--api-socket", filepath.Join(dir, "a"))
				}
				if i.env == nil {
					i.env = map[string]string{}
				}
				i.env["DISPATCHERD_API_SOCKET"] = filepath.Join(dir, "none") // a daemon of this machine must not answer
				got := i.runs(t)
				require.NotContains(t, got.out+got.err, secret, "%s, by %s, with %s", line, name, dsn)
				if !strings.HasPrefix(line, "config") {
					require.NotEqual(t, exit.OK, got.code, "%s with %s", line, dsn)
				}
			}
		}
	}
}

func TestRefusedInsertDoesNotRepeatThePayload(t *testing.T) {
	const canary = "canary-41bd7"
	s := serving(t, "")
	for _, payload := range []string{canary, `"` + canary + `\u0000"`, `"` + canary + strings.Repeat("x", 1_000_100) + `"`} {
		got := s.ask(t, "", "job insert --type x --payload", payload)
		require.NotEqual(t, exit.OK, got.code)
		require.NotContains(t, got.out+got.err, canary)
	}
}

// The test finds each setting that may contain a secret by its type, so it holds for commands
// and settings that are added later.
func TestNoCommandPrintsASecretSetting(t *testing.T) {
	const secret = "hunter2S3CRET"
	values := map[string]string{"url": "postgres://u:" + secret + "@/d?host=/does/not/exist", "secret": secret}
	found := map[string]int{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		_ = cmd.InheritedFlags() // merges the root's flags into cmd.Flags()
		path := strings.Fields(cmd.CommandPath())[1:]
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			value, secretive := values[f.Value.Type()]
			if !secretive || !cmd.Runnable() || len(path) == 0 {
				return
			}
			found[f.Value.Type()]++
			variable := map[string]string{"url": "DATABASE_URL", "secret": "DISPATCHERD_API_TOKEN"}[f.Value.Type()]
			show := append([]string{"config", "show"}, path...)
			for _, i := range []invocation{
				{args: append(slices.Clone(path), "--"+f.Name, value, "--help")},
				{args: append(slices.Clone(path), "--"+f.Name, value, "--no-such-flag")},
				{args: append(slices.Clone(path), "--help"), env: map[string]string{variable: value}},
				{args: show, env: map[string]string{variable: value}},
				{args: append(slices.Clone(show), "--origin", "-o", "json"), env: map[string]string{variable: value}},
				{args: append(slices.Clone(show), "--config", configFileWith(t, f.Name+" = '"+value+"'\n"))},
			} {
				got := i.runs(t)
				require.NotContains(t, got.out+got.err, secret, "%v", i.args)
			}
		})
	}
	visit(bare(nil).root())
	require.Len(t, found, len(values), "settings with secrets are found by type")
}
