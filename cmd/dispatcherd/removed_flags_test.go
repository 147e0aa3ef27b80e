package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// removedConstants are the values of the settings that became constants.
func removedConstants() map[string]any {
	formerly := map[string]string{"max-shared-requests": "max-runs", "max-shared-request-bytes": "max-run-bytes"}
	c, l, p := config.Default(), config.Default().Limits, workerproto.Limits{}.WithDefaults()
	all := map[string]any{
		"claim-batch": l.ClaimBatch, "finish-batch": l.FinishBatch, "lane-length": l.LaneLength, "lanes-per-fetch": l.LanesPerFetch,
		"lost-per-list": l.LostPerList, "max-slots": l.Slots, "max-types": l.Types, "max-unrecorded": l.Unfinished,
		"max-connections": p.MaxConnections, "max-slots-per-worker": p.MaxSlots, "max-types-per-slot": p.MaxTypesPerSlot, "outbox": p.Outbox,
		"hello-timeout": p.HelloTimeout, "write-timeout": p.WriteTimeout, "patience": c.Patience,
	}
	for name, value := range constantBounds() {
		if flag, renamed := formerly[name]; renamed {
			name = flag
		}
		all[name] = value
	}
	for _, never := range []string{"max-open-requests", "max-connection-rate"} {
		delete(all, never) // these constants have never been flags
	}
	return all
}

var constantIn = regexp.MustCompile(`it is a constant now \(([^)]+)\): .`)

func TestRemovedFlagNamesItsConstantValue(t *testing.T) {
	for name, value := range removedConstants() {
		got := invocation{args: []string{"serve", "--" + name + "=1"}}.runs(t)
		require.Equal(t, exit.Usage, got.code, name)
		require.Contains(t, got.err, "there is no flag --"+name+" any more", name)
		told := constantIn.FindStringSubmatch(got.err)
		require.NotNil(t, told, got.err)
		if d, ok := value.(time.Duration); ok {
			parsed, err := time.ParseDuration(told[1])
			require.NoError(t, err, name)
			require.Equal(t, d, parsed, name)
			continue
		}
		require.Equal(t, fmt.Sprint(value), told[1], name)
	}
}

func TestRenamedFlagNamesItsSuccessor(t *testing.T) {
	for old, now := range map[string]string{
		"comeback": "reconnect-grace", "beat": "lease", "heartbeat": "heartbeat-timeout", "keep-cancelled": "keep-done",
		"no-on-demand-cap": "on-demand-cap",
		"socket-mode":      "worker-socket", "weight-ageing": "weights", "weight-on-demand": "weights", "weight-on-demand-ageing": "weights",
		"weight-priority": "weights", "weight-rarity": "weights",
	} {
		says := "it is replaced by --" + now + ": "
		got := invocation{args: []string{"dev", "--" + old + "=1s"}}.runs(t)
		require.Equal(t, exit.Usage, got.code)
		require.Contains(t, got.err, says)
		variable := "DISPATCHERD_" + strings.ToUpper(strings.ReplaceAll(old, "-", "_"))
		got = invocation{args: []string{"config", "show"}, env: map[string]string{variable: "1s"}}.runs(t)
		require.Equal(t, exit.Usage, got.code)
		require.Contains(t, got.err, "environment variable "+variable+": there is no setting")
		require.Contains(t, got.err, says)
		got = invocation{args: []string{"config", "show", "--config", configFileWith(t, old+" = '1s'\n")}}.runs(t)
		require.Equal(t, exit.Usage, got.code)
		require.Contains(t, got.err, says)
		serve, _, err := bare(nothingSet).root().Find([]string{"serve"})
		require.NoError(t, err)
		require.NotNil(t, serve.Flags().Lookup(now), "--%s exists", now)
		require.Nil(t, serve.Flags().Lookup(old), "--%s does not exist", old)
	}
}

func TestServeHasAtMost40Flags(t *testing.T) {
	got := invocation{args: []string{"serve", "--help"}}.runs(t)
	require.Equal(t, exit.OK, got.code)
	flags := regexp.MustCompile(`(?m)^ +(-\w, )?--[a-z]`).FindAllString(got.out, -1)
	require.LessOrEqual(t, len(flags), 40)
	for _, group := range []string{"Sockets", "Postgres", "Policy", "Limits", "Retention", "Observability"} {
		require.Contains(t, got.out, "\n"+group+":\n")
	}
}
