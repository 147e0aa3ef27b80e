package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// The table of bounds in docs/api.md has every flag with its default, and names
// tests that are there.
func TestEveryBoundOfTheAPIIsInItsTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "api.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "## Bounds")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "## ")
	var tests strings.Builder
	for _, pattern := range []string{"../../e2e/*_test.go", "../../api/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, f := range files {
			source, err := os.ReadFile(f)
			require.NoError(t, err)
			tests.Write(source)
		}
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(serveFlags).registerAPI(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "api-listen" || f.Name == "api-tokens" {
			return // no bounds
		}
		row := regexp.MustCompile("(?m)^\\| `--" + f.Name + "` \\| ([^|]+) \\|.*\\|$").FindStringSubmatch(table)
		require.NotNil(t, row, "--%s is not in the table", f.Name)
		require.Equal(t, plainDefault(f), row[1], f.Name)
	})
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(table, -1)
	require.Greater(t, len(named), 15)
	for _, n := range named {
		require.Contains(t, tests.String(), "func "+n[1]+"(", "named in the table")
	}
}

// plainDefault is a flag's default as people write it.
func plainDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "1073741824":
		return "1 GiB"
	case "67108864":
		return "64 MiB"
	case "16384":
		return "16 KiB"
	}
	if d, err := time.ParseDuration(f.DefValue); err == nil && f.Value.Type() == "duration" {
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
	digits := f.DefValue
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
