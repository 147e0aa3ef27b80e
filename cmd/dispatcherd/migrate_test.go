package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// onDatabase runs a command line, split at blanks, on a database.
func onDatabase(t *testing.T, url, stdin, line string, more ...string) outcome {
	t.Helper()
	return invocation{args: append(strings.Fields(line), more...), stdin: stdin, env: map[string]string{"DATABASE_URL": url}}.runs(t)
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// withoutNow replaces all times except those of the test, which are on the second of January.
func withoutNow(text string) string {
	return stamps.ReplaceAllStringFunc(text, func(s string) string {
		if strings.Contains(s, "-01-02T03:0") {
			return s
		}
		return "2222-02-22T22:22:22Z"
	})
}

func TestMigrateUpAndDownReportTheirSteps(t *testing.T) {
	url := pgtest.Empty(t)
	var report strings.Builder
	for _, step := range []struct {
		line string
		code int
	}{
		{"migrate status", exit.Negative},
		{"migrate down", exit.OK},
		{"migrate down --to 0 --yes", exit.OK},
		{"migrate down --to 1 --yes", exit.Usage},
		{"migrate up", exit.OK},
		{"migrate up", exit.OK},
		{"migrate status", exit.OK},
		{"migrate status -o json", exit.OK},
		{"migrate down --to 99 --yes", exit.Usage},
		{"migrate down", exit.Negative},
		{"migrate down --to 0", exit.Negative},
		{"INSERT INTO dispatcherd.jobs (type) VALUES ('pdf') RETURNING type", exit.OK},
		{"migrate down --to 0", exit.Negative},
		{"migrate down --yes", exit.OK},
		{"migrate down --to 0 --yes -o json", exit.OK},
		{"migrate status", exit.Negative},
	} {
		if strings.HasPrefix(step.line, "INSERT") {
			require.Len(t, query(t, url, step.line), 1)
			continue
		}
		got := onDatabase(t, url, "", step.line)
		require.Equal(t, step.code, got.code, "%s: %s", step.line, got.err)
		report.WriteString("$ dispatcherd " + step.line + "\n" + got.out + got.err + "\n")
	}
	requireGolden(t, "migrate.txt", withoutNow(report.String()))
}

func TestUnknownSchemaVersionExitsUnavailable(t *testing.T) {
	a := &app{running: true}
	err := &migrations.VersionError{Have: 1, Want: 2}
	require.Equal(t, exit.Unavailable, a.exitCode(t.Context(), err))
	require.Contains(t, exit.Explain(err), "dispatcherd migrate up")
}

// The first new daemon of a rolling upgrade starts although the last migration waits for the end of the older ones.
func TestServeMigratesBesideOlderDaemons(t *testing.T) {
	url := pgtest.New(t)
	_, err := migrations.Down(t.Context(), url, 39)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(
		t.Context(),
		`INSERT INTO dispatcherd.dispatchers (id, name, lease, incarnation) OVERRIDING SYSTEM VALUE
			VALUES (1, 'old', '1 min', gen_random_uuid())`,
	)
	require.NoError(t, err)
	core, logs := observer.New(zap.WarnLevel)
	require.NoError(t, migrateFirst(t.Context(), url, zap.New(core)))
	require.Equal(t, 1, logs.FilterMessageSnippet("dispatchers of a former version run: 'old'").Len())
	_, err = conn.Exec(t.Context(), `DELETE FROM dispatcherd.dispatchers`)
	require.NoError(t, err)
	require.NoError(t, migrateFirst(t.Context(), url, zap.New(core)))
	require.Equal(t, 1, logs.Len())
}
