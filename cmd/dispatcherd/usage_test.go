package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// A terminal has often only 100 columns.
func TestHelpFitsATerminal(t *testing.T) {
	var walk func(path []string, cmd *cobra.Command)
	walk = func(path []string, cmd *cobra.Command) {
		for line := range strings.Lines((invocation{args: append(slices.Clone(path), "--help")}).runs(t).out) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 100, "%s: %s", path, line)
		}
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() {
				walk(append(slices.Clone(path), child.Name()), child)
			}
		}
	}
	root := bare(nil).root()
	walk(nil, root)
}

func TestUsageErrorsNameTheMistakeAndExit2(t *testing.T) {
	var report strings.Builder
	for _, line := range []string{
		"bogus",
		"config shw",
		"config show --no-such-flag",
		"config show no-such-command",
		"version -o yaml",
		"version extra",
		"version --config /does/not/exist",
		"worker run --types x --slots many -- cat",
		"worker run --types x --slots 99999999999999999999 -- cat",
		"serve --lease 10",
		"serve --listen=perhaps",
		"serve --weights ageing=1.5",
		"serve --weights ageing=0",
		"serve --weights aging=2",
		"serve --weights 2",
		"serve --weights rarity=1,rarity=2",
		"serve --weights rarity=1 --weights rarity=2",
		"serve --lese 10s",
		"serve --worker-socket /w,mode=999",
		"serve --allow pdf",
		"serve --allow-api pdf",
		"serve --allow-api pdf=1 --api-listen 127.0.0.1:8088",
		"serve --allow-api pdf=1 --api-listen 127.0.0.1:99999",
		"serve --api-listen 0.0.0.0:http2x",
		"serve --app-version 1.4-é",
		"serve --app-version " + strings.Repeat("1.", 124) + "1",
		"job list --api-token secret",
		"request pdf --api-token secret",
		"job cancel --type pdf --count -5 --yes",
		"job cancel --count -5 -7",
		"serve --worker-socket /tmp/d.sock --api-socket /tmp/../tmp/d.sock",
		"serve --lease 0s",
		"serve --on-demand-cap never",
		"worker run --types x --worker-grace -1s -- cat",
		"job list --cursor 4!",
		"job insert --type x --payload-file /",
		"trace replay /tmp/day --speed NaN",
		"--version extra",
		"doctor --help",
		"job shw -h",
		"help doctor",
		"worker run --types a, -- cat",
		"worker run --types a --env A=b -- cat",
		"serve --log-level loud",
		"dev --ephemeral --data-dir d",
		"dev --database-url postgres://h/d",
		"job list --database-url postgres://h/d",
		"serve --database-url postgres://h/d --retry-base 1h",
		"job show 1",
		"job explain 1",
		"top",
		"cancel 7",
		"job workers",
		"logs 7",
		"list",
		"job get -3",
		"job wait 3 --token t",
		"type set pdf",
		"worker drain w --types=",
		"schedule set tick --spec @daily",
		"limit set bank --capacity 1",
		"worker run --types x --dispatcher tls://h:1 --token /t -- cat",
		"worker run --types x --dispatcher unix:///a,unix:///b,tls://h:1 -- cat",
		"worker run --types x --dispatcher tls://h:1 --token-file /does/not/exist -- cat",
		"worker run --types x --dispatcher tls://h:1 --ca /does/not/exist -- cat",
		"slot list -5",
		"job insert --type x --run-at -5s",
		"trace generate /dev/null/x",
		"trace export /dev/null",
		"trace demo a b",
		"replay /tmp/day",
	} {
		got := invocation{args: strings.Fields(line)}.runs(t)
		require.Equal(t, exit.Usage, got.code, line)
		require.Empty(t, got.out, "%s: an error must write nothing to the data output", line)
		fmt.Fprintf(&report, "$ dispatcherd %s\n%s\n", line, got.err)
	}
	requireGolden(t, "usage-errors.txt", report.String())
}

func TestGroupsHaveTheArgumentHelp(t *testing.T) {
	for line, same := range map[string]string{
		"schedule help": "schedule --help", "job help list": "job list --help", "help limit set": "limit set --help",
	} {
		got, want := invocation{args: strings.Fields(line)}.runs(t), invocation{args: strings.Fields(same)}.runs(t)
		require.Equal(t, want.out, got.out, line)
		require.Equal(t, exit.OK, got.code, got.err)
	}
	got := invocation{args: []string{"job", "help", "lst"}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, `unknown command "lst" for "dispatcherd job"`)
}

func TestHelpShowsTheExamplesFirst(t *testing.T) {
	for _, line := range []string{"", "--help", "config", "help version", "config show -h"} {
		got := invocation{args: strings.Fields(line)}.runs(t)
		require.Equal(t, exit.OK, got.code, line)
		require.Empty(t, got.err, line)
		usage := strings.Index(got.out, "Usage:")
		require.Positive(t, usage, line)
		if example := strings.Index(got.out, "Examples:"); example >= 0 {
			require.Less(t, example, usage, line)
		}
	}
}

func TestEveryCommandHasAnExampleAndAShortText(t *testing.T) {
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		if !cmd.HasSubCommands() {
			require.NotEmpty(t, cmd.Example, cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			check(child)
		}
	}
	check(bare(nil).root())
}

func TestVersionAsJSONHasASchemaVersion(t *testing.T) {
	got := invocation{args: []string{"version", "-o", "json"}}.runs(t)
	require.Equal(t, exit.OK, got.code)
	var parsed struct {
		SchemaVersion int          `json:"schema_version"`
		Version       buildVersion `json:"version"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.out), &parsed))
	require.Equal(t, 1, parsed.SchemaVersion)
	require.NotEmpty(t, parsed.Version.Version)
	text := invocation{args: []string{"version"}}.runs(t)
	require.Contains(t, text.out, "dispatcherd "+parsed.Version.Version)
	for _, flag := range []string{"--version", "-v"} {
		require.Equal(t, text, invocation{args: []string{flag}}.runs(t))
		require.Equal(t, got, invocation{args: []string{flag, "-o", "json"}}.runs(t))
	}
}

func TestEachKindOfErrorHasItsExitCode(t *testing.T) {
	refused := &pgconn.PgError{Code: "57P03", Message: "the database system is starting up"}
	noTable := &pgconn.PgError{Code: "42P01", Message: `relation "dispatcherd.jobs" does not exist`}
	cases := []struct {
		name string
		err  error
		code int
		says string
	}{
		{"coded", exit.Errorf(exit.NotFound, "job 7 does not exist"), exit.NotFound, "dispatcherd: job 7 does not exist\n"},
		{"wrapped", fmt.Errorf("listing: %w", exit.Errorf(exit.Conflict, "busy")), exit.Conflict, "dispatcherd: listing: busy\n"},
		{"data in use", &devpg.InUseError{Dir: "/d", PID: 7}, exit.Conflict, "in use by process 7"},
		{"no Postgres", devpg.ErrMissing, exit.Unavailable, "no usable Postgres"},
		{"not up yet", refused, exit.Unavailable, "check that Postgres runs"},
		{"no schema", noTable, exit.Unavailable, "dispatcherd migrate up"},
		{"anything else", errors.New("a bug"), exit.Internal, "dispatcherd: a bug\n"},
	}
	for _, c := range cases {
		fails := func(*app) *cobra.Command {
			return &cobra.Command{Use: "fail", RunE: func(*cobra.Command, []string) error { return c.err }}
		}
		got := invocation{args: []string{"fail"}, extra: fails}.runs(t)
		require.Equal(t, c.code, got.code, c.name)
		require.Contains(t, got.err, c.says, c.name)
		require.NotContains(t, got.err, "--help", "%s: the command line was correct", c.name)
	}
}

func TestInterruptedCommandHasItsOwnExitCode(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := &app{running: true}
	require.Equal(t, exit.Internal, a.exitCode(ctx, context.Canceled), "ctx is not canceled")
	cancel()
	require.Equal(t, exit.Interrupted, a.exitCode(ctx, fmt.Errorf("inserting: %w", context.Canceled)))
}

func TestUnreachableDatabaseExits5WithoutThePassword(t *testing.T) {
	got := invocation{args: []string{"migrate", "status", "--database-url", "postgres://me:hunter2@/x?host=/does/not/exist"}}.runs(t)
	require.Equal(t, exit.Unavailable, got.code)
	require.Contains(t, got.err, "check that Postgres runs")
	require.NotContains(t, got.err, "hunter2")

	got = invocation{args: []string{"migrate", "status"}, env: map[string]string{"DATABASE_URL": "postgres://me:hunter2@h:port/x"}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, "database-url (environment DATABASE_URL)")
	require.NotContains(t, got.err, "hunter2")

	for url, says := range map[string]string{
		"postgres://me:hunter2@h:port/x":           "invalid port",
		"postgress://me:hunter2@h/x?sslmode=allow": "begins with postgres:// or postgresql://",
	} {
		got = invocation{args: []string{"serve"}, env: map[string]string{"DATABASE_URL": url}}.runs(t)
		require.Equal(t, exit.Usage, got.code)
		require.Contains(t, got.err, "database-url (environment DATABASE_URL)")
		require.Contains(t, got.err, says)
		require.Equal(t, 2, strings.Count(got.err, "\n"), "the error is printed once, with a hint to the help: %s", got.err)
		require.NotContains(t, got.err, "hunter2")
	}

	got = invocation{args: []string{"migrate", "status"}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, "no database is named: give --database-url")
}

// The driver tries an address first with TLS and then without, and reports both
// errors.
func TestConnectionErrorIsReportedOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close()) // the address has no listener now
	got := invocation{args: []string{"migrate", "status", "--database-url", "postgres://me@" + l.Addr().String() + "/x"}}.runs(t)
	require.Equal(t, exit.Unavailable, got.code)
	require.Equal(t, 1, strings.Count(got.err, "connection refused"), got.err)
	require.Equal(t, 1, strings.Count(got.err, "\n"), "one line")
}
