package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files anew")

// invocation is one run of the program in a test.
type invocation struct {
	args  []string
	stdin string
	env   map[string]string
	extra func(*app) *cobra.Command // an additional command below the root
}

// outcome is the result of an invocation.
type outcome struct {
	code     int
	out, err string
}

// runs executes the invocation in process. It uses the environment of the
// invocation. Only pgx reads some variables of the test process.
func (i invocation) runs(t *testing.T) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	a := bare(i.env)
	a.Console = cli.Console{In: strings.NewReader(i.stdin), Out: &out, Err: &errs}
	if i.extra != nil {
		before := commands
		commands = append(slices.Clip(commands), i.extra)
		defer func() { commands = before }()
	}
	args := append([]string{"--config", ""}, i.args...)
	if strings.Contains(strings.Join(i.args, " "), "--config") {
		args = i.args
	}
	code := a.run(t.Context(), args)
	return outcome{code: code, out: out.String(), err: errs.String()}
}

// bare is an invocation without input and output.
func bare(env map[string]string) *app {
	return &app{Invocation: cli.Invocation{Env: env}}
}

// requireGolden compares text with a file below testdata.
func requireGolden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "run the test with -update if the change is meant")
}

// configFileWith writes a configuration file.
func configFileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}
