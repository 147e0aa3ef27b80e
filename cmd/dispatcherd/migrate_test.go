package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
		{"migrate down --yes", exit.OK},
		{"migrate up", exit.OK},
		{"migrate up", exit.OK},
		{"migrate status", exit.OK},
		{"migrate status -o json", exit.OK},
		{"migrate down", exit.Negative},
		{"INSERT INTO dispatcherd.jobs (type) VALUES ('pdf') RETURNING type", exit.OK},
		{"migrate down", exit.Negative},
		{"migrate down --yes", exit.OK},
		{"migrate down --yes -o json", exit.OK},
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
	list, err := migrations.Status(t.Context(), url)
	require.NoError(t, err)
	requireGolden(t, "migrate.txt", withoutNow(strings.ReplaceAll(report.String(), strconv.FormatInt(list[0].Version, 10), "NNN")))
}

func TestUnknownSchemaVersionExitsUnavailable(t *testing.T) {
	a := &app{running: true}
	err := &migrations.VersionError{Have: 1, Want: 2}
	require.Equal(t, exit.Unavailable, a.exitCode(t.Context(), err))
	require.Contains(t, exit.Explain(err), "dispatcherd migrate up")
}
