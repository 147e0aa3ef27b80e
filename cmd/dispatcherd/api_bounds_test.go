package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/connrate"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// constantBounds returns the bounds of the API that are constants, by their
// names in docs/api.md.
func constantBounds() map[string]any {
	c := daemon.DefaultAPIConfig()
	return map[string]any{
		"max-body-bytes":           c.MaxBodies,
		"max-upload":               c.MaxUpload,
		"request-timeout":          c.DefaultTimeout,
		"max-request-timeout":      c.MaxTimeout,
		"max-api-connections":      c.MaxConnections,
		"max-connection-rate":      connrate.Default,
		"max-api-header":           c.MaxHeader,
		"api-header-timeout":       c.HeaderTimeout,
		"api-body-timeout":         c.BodyTimeout,
		"api-write-timeout":        c.WriteTimeout,
		"api-idle-timeout":         c.IdleTimeout,
		"api-heartbeat":            c.Heartbeat,
		"max-open-requests":        c.OpenRequests,
		"max-shared-requests":      c.SharedRequests,
		"max-keys":                 c.Keys,
		"keep-answers":             c.KeepAnswers,
		"max-shared-request-bytes": c.KeepBytes,
		"max-events":               c.EventsPerRequest,
		"api-database-connections": c.Connections,
		"answer-poll":              daemon.RowPoll,
	}
}

// boundTests names tests of each bound in docs/api.md. The test of the grace period is
// the scenario actor/testdata/on_demand_last_slot_goes_away.txt.
var boundTests = map[string][]string{
	"--max-requests":           {"TestRefusedRequestGetsProblemWithReason"},
	"--max-payload":            {"TestMalformedHTTPDoesNotAffectOtherCallers", "TestUploadWithALongLineIsRefused"},
	"--reconnect-grace":        {},
	"max-body-bytes":           {"TestBodiesOfAllCallersAreBounded"},
	"max-upload":               {"TestUploadIsBoundedInTotal"},
	"request-timeout":          {"TestRequestWithoutDeadlineGetsTheDefault"},
	"max-request-timeout":      {"FuzzRequest"},
	"max-api-connections":      {"TestIdleConnectionsMakeRoom", "TestIdleCallersAndBadTokensUseBoundedMemory"},
	"max-connection-rate":      {"TestUserThatConnectsTooFastIsRejected"},
	"max-api-header":           {"TestMalformedHTTPDoesNotAffectOtherCallers"},
	"api-header-timeout":       {"TestSlowHTTPEndsAndDoesNotAffectOtherCallers"},
	"api-body-timeout":         {"TestSlowHTTPEndsAndDoesNotAffectOtherCallers"},
	"api-write-timeout":        {"TestStreamWithoutReaderEnds", "TestConnectionWithUnreadAnswersEnds"},
	"api-idle-timeout":         {"TestIdleConnectionEnds"},
	"api-heartbeat":            {"TestHeartbeatsKeepAnIdleStreamOpenUntilItsDeadline"},
	"max-open-requests":        {"TestOpenRequestsOfAConnectionAreBounded", "TestCallerThatDoesNotReadLosesItsSession"},
	"max-shared-requests":      {"TestSharedRequestsAreBoundedInNumberAndTime"},
	"max-keys":                 {"TestKeysOfSharedRequestsAreBounded"},
	"keep-answers":             {"TestSharedRequestsAreBoundedInNumberAndTime"},
	"max-shared-request-bytes": {"TestBytesOfSharedRequestsAreBounded", "TestWatchIsBoundedInBytes"},
	"max-events":               {"TestSlowReaderGetsAGap"},
	"api-database-connections": {"TestCallersShareFewConnectionsToPostgres", "TestSlowUploadsLeaveAConnectionForOtherCalls"},
	"answer-poll":              {"TestDurableRequestIsServedByAnotherDispatcher"},
}

// docs/api.md states the default of every bound, and every bound has a test.
func TestBoundsOfTheAPIMatchTheDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "api.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "## Bounds")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "## ")
	row := func(name, value string) {
		found := regexp.MustCompile("(?m)^\\| `" + name + "` \\| ([^|]+) \\|.*\\|$").FindStringSubmatch(table)
		require.NotNil(t, found, "%s is not in the table", name)
		require.Equal(t, readable(value), found[1], name)
		require.Contains(t, boundTests, name)
	}
	serve, _, err := bare(nothingSet).root().Find([]string{"serve"})
	require.NoError(t, err)
	for _, name := range []string{"max-requests", "max-payload", "reconnect-grace"} {
		row("--"+name, serve.Flags().Lookup(name).DefValue)
	}
	for name, value := range constantBounds() {
		row(name, fmt.Sprint(value))
	}
	existing := namesOfTests(t, "../../e2e/*_test.go", "../../internal/httpapi/*_test.go")
	for bound, names := range boundTests {
		for _, name := range names {
			require.True(t, existing[name], "%s: there is no test %s", bound, name)
		}
	}
}

// namesOfTests returns the names of all tests and fuzz targets in the files that the
// patterns match.
func namesOfTests(t *testing.T, patterns ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, f := range files {
			source, err := os.ReadFile(f)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(source, -1) {
				names[string(m[1])] = true
			}
		}
	}
	return names
}

// readable formats a value as the documents do.
func readable(value string) string {
	switch value {
	case "1073741824":
		return "1 GiB"
	case "67108864":
		return "64 MiB"
	case "16384":
		return "16 KiB"
	}
	if d, err := time.ParseDuration(value); err == nil {
		switch {
		case d%time.Hour == 0:
			return fmt.Sprint(int(d.Hours()), " h")
		case d%time.Minute == 0:
			return fmt.Sprint(int(d.Minutes()), " min")
		case d%time.Second == 0:
			return fmt.Sprint(int(d.Seconds()), " s")
		}
		return fmt.Sprint(d.Milliseconds(), " ms")
	}
	for at := len(value) - 3; at > 0; at -= 3 {
		value = value[:at] + "," + value[at:]
	}
	return value
}
