package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// A misspelt variable is reported without its value, because the value may be a secret.
func TestUnknownVariableIsReported(t *testing.T) {
	env := map[string]string{
		"DISPATCHERD_PROBE_LIMT":  "canary",
		"DISPATCHERD_PROBE_FORCE": "canary", // a flag that applies to one invocation is not a setting
		"DISPATCHERD_PROBE_LIMIT": "2",
		"DISPATCHERD_CONFIG":      "",
		"DISPATCHERD_JOB_ID":      "7",
		"DISPATCHERD_TYPE":        "pdf",
		"DISPATCHERDX":            "1",
		"PATH":                    "/bin",
	}
	got := invocation{args: []string{"probe"}, env: env, extra: probeCommand}.runs(t)
	require.Equal(t, exit.OK, got.code)
	require.Empty(t, got.out)
	require.Equal(t, "dispatcherd: there is no setting for the environment variable DISPATCHERD_PROBE_FORCE: it is ignored\n"+
		"dispatcherd: there is no setting for the environment variable DISPATCHERD_PROBE_LIMT; the nearest one is "+
		"DISPATCHERD_PROBE_LIMIT: it is ignored\n", got.err)

	_, got = shown(t, invocation{env: env})
	require.Equal(t, exit.Usage, got.code, "as for an unknown key in the file")
	require.Contains(t, got.err, "no setting for the environment variable DISPATCHERD_PROBE_FORCE")
	require.NotContains(t, got.err, "canary")
	require.NotContains(t, got.err, "ignored", "config show fails instead")
}

// A daemon logs each ignored variable once.
func TestDaemonLogsIgnoredVariables(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	a := bare(map[string]string{"DISPATCHERD_LEESE": "canary", "DISPATCHERD_LEASE": "1s", "DISPATCHERD_SERVICE_HOST": "canary"})
	serve, _, err := a.root().Find([]string{"serve"})
	require.NoError(t, err)
	a.SayIgnored(serve) // nothing: a.Err is nil
	a.LogIgnored(zap.New(core))
	require.Equal(t, 2, seen.Len())
	require.Equal(t,
		"there is no setting for the environment variable DISPATCHERD_LEESE; the nearest one is DISPATCHERD_LEASE: it is ignored",
		seen.All()[0].Message)
	require.Equal(t, "there is no setting for the environment variable DISPATCHERD_SERVICE_HOST: it is ignored", seen.All()[1].Message)
}

func TestReportOfUnknownVariablesIsBounded(t *testing.T) {
	env := map[string]string{}
	for n := range 100 {
		env[fmt.Sprintf("DISPATCHERD_%03d%s", n, strings.Repeat("\nX", 5000))] = "x"
	}
	got := invocation{args: []string{"probe"}, env: env, extra: probeCommand}.runs(t)
	require.Equal(t, exit.OK, got.code)
	require.Equal(t, 10, strings.Count(got.err, "\n"))
	require.Less(t, len(got.err), 3000)
}
