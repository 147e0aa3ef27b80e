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

	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// constantBounds returns the bounds of the API that are constants, by their
// names in docs/reference/api.md.
func constantBounds() map[string]any {
	all := daemon.DefaultConfig()
	c := all.API
	return map[string]any{
		"max-body-bytes":           c.MaxBodies,
		"max-upload":               c.MaxUpload,
		"request-timeout":          c.DefaultTimeout,
		"max-request-timeout":      c.MaxTimeout,
		"max-api-connections":      c.MaxConnections,
		"max-connection-rate":      all.ConnectionRate,
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

// docs/reference/api.md states the default of every bound.
func TestBoundsOfTheAPIMatchTheDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "api.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "## Bounds")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "## ")
	row := func(name, value string) {
		found := regexp.MustCompile("(?m)^\\| `" + name + "` \\| ([^|]+) \\|.*\\|$").FindStringSubmatch(table)
		require.NotNil(t, found, "%s is not in the table", name)
		require.Equal(t, readable(value), found[1], name)
	}
	serve, _, err := bare(nil).root().Find([]string{"serve"})
	require.NoError(t, err)
	for _, name := range []string{"max-requests", "max-payload", "reconnect-grace"} {
		row("--"+name, serve.Flags().Lookup(name).DefValue)
	}
	for name, value := range constantBounds() {
		row(name, fmt.Sprint(value))
	}
}

// readable formats a value as the documents do.
func readable(value string) string {
	switch value {
	case "1073741824":
		return "1 GiB"
	case "67108864":
		return "64 MiB"
	case "134217728":
		return "128 MiB"
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
