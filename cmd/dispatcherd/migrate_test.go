package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// onDatabase runs a command line, split at blanks, on a database.
func onDatabase(t *testing.T, url, stdin, line string, more ...string) outcome {
	t.Helper()
	return invocation{args: append(strings.Fields(line), more...), stdin: stdin, env: map[string]string{"DATABASE_URL": url}}.runs(t)
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// withoutNow replaces the times that a test did not choose: it chooses the
// second of January.
func withoutNow(text string) string {
	return stamps.ReplaceAllStringFunc(text, func(s string) string {
		if strings.Contains(s, "-01-02T03:0") {
			return s
		}
		return "2222-02-22T22:22:22Z"
	})
}

func TestMigrateGoesUpAndDownAndSaysWhatItDid(t *testing.T) {
	url := pgtest.Empty(t)
	var report strings.Builder
	for _, step := range []struct {
		line string
		code int
	}{
		{"migrate status", exitNegative},
		{"migrate down", exitOK},
		{"migrate down --to 0 --yes", exitOK},
		{"migrate down --to 1 --yes", exitUsage},
		{"job insert --type pdf", exitUnavailable},
		{"migrate up", exitOK},
		{"migrate up", exitOK},
		{"migrate status", exitOK},
		{"migrate status -o json", exitOK},
		{"migrate down --to 99 --yes", exitUsage},
		{"migrate down", exitNegative},
		{"migrate down --to 0", exitNegative},
		{"job insert --type pdf", exitOK},
		{"migrate down --to 0", exitNegative},
		{"migrate down --yes", exitOK},
		{"migrate down --to 0 --yes -o json", exitOK},
		{"migrate status", exitNegative},
	} {
		got := onDatabase(t, url, "", step.line)
		require.Equal(t, step.code, got.code, "%s: %s", step.line, got.err)
		report.WriteString("$ dispatcherd " + step.line + "\n" + got.out + got.err + "\n")
	}
	requireGolden(t, "migrate.txt", withoutNow(report.String()))
}

func TestAVersionThatDoesNotFitIsUnavailable(t *testing.T) {
	a := &app{running: true}
	err := &migrations.VersionError{Have: 1, Want: 2}
	require.Equal(t, exitUnavailable, a.exitCode(t.Context(), err))
	require.Contains(t, explain(err), "dispatcherd migrate up")
}
