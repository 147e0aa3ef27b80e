package main

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// numberFlags calls visit for every flag of a command that takes a number or a
// duration.
func numberFlags(visit func(path string, f *pflag.Flag)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if isNumber(f) {
				visit(cmd.CommandPath(), f)
			}
		})
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(bare(nil).root())
}

// tryFlag resolves the settings of a command with one flag.
func tryFlag(t *testing.T, path, flag string) error {
	t.Helper()
	a := bare(nil)
	cmd, _, err := a.root().Find(strings.Fields(path)[1:])
	require.NoError(t, err)
	if err := cmd.ParseFlags([]string{"--config", "", flag}); err != nil {
		return cli.FlagError(cmd, err)
	}
	return a.Resolve(cmd)
}

func TestNegativeNumbersAndDurationsAreRejected(t *testing.T) {
	negatives := map[string]string{"duration": "-1s"}
	seen := 0
	numberFlags(func(path string, f *pflag.Flag) {
		value := negatives[f.Value.Type()]
		switch {
		case f.Value.Type() == "uint64":
			return // pflag rejects the sign
		case path == "dispatcherd job requests" && f.Name == "after":
			return // ids of requests in memory are negative
		case value == "":
			value = "-1"
		}
		seen++
		err := tryFlag(t, path, "--"+f.Name+"="+value)
		require.ErrorContains(t, err, "--"+f.Name+" is \""+value+"\": must be at least ", path)
		require.Equal(t, exit.Usage, (&app{}).exitCode(t.Context(), err))
	})
	require.Greater(t, seen, 50)
}

// size converts two numbers, two durations, or two sizes, to comparable values.
func size(t *testing.T, text string) float64 {
	t.Helper()
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds()
	}
	for unit, factor := range map[string]float64{"d": 86400, "MiB": 1 << 20, "GiB": 1 << 30} {
		if digits, found := strings.CutSuffix(text, unit); found {
			return factor * size(t, digits)
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return n
}

// boundsOf returns the range of a flag.
func boundsOf(f *pflag.Flag) (least, most string) {
	if v := reflect.ValueOf(f.Value); v.Kind() == reflect.Struct && v.FieldByName("most").IsValid() {
		return v.FieldByName("least").String(), v.FieldByName("most").String()
	}
	return "0", "Inf"
}

func TestEveryNumberAndDurationHasBothBounds(t *testing.T) {
	numberFlags(func(path string, f *pflag.Flag) {
		least, most := boundsOf(f)
		require.NotEqual(t, "Inf", most, "%s --%s has no bounds", path, f.Name)
		require.Less(t, size(t, least), size(t, most), "%s --%s", path, f.Name)
		if kind := f.Value.Type(); most == cli.LargestID || kind == "uint64" || kind == "int16" {
			return // a larger value does not exist
		}
		require.NoError(t, tryFlag(t, path, "--"+f.Name+"="+most), "%s --%s", path, f.Name)
		beyond := most + "0"
		switch {
		case f.Value.Type() == "duration":
			beyond = "1000000h"
		case f.Value.Type() == "size":
			beyond = "1" + most
		case most == "-1":
			beyond = "0"
		}
		err := tryFlag(t, path, "--"+f.Name+"="+beyond)
		require.ErrorContains(t, err, ": must be at most "+most, "%s --%s", path, f.Name)
		require.Equal(t, exit.Usage, (&app{}).exitCode(t.Context(), err))
	})
}

// A flag rejects 0 if 0 has no meaning, or if 0 would mean the default.
func TestZeroIsAcceptedOnlyWhereItHasAMeaning(t *testing.T) {
	var taken []string
	numberFlags(func(path string, f *pflag.Flag) {
		value := "0"
		if f.Value.Type() == "duration" {
			value = "0s"
		}
		if command := strings.TrimPrefix(path, "dispatcherd "); command != "dev" && tryFlag(t, path, "--"+f.Name+"="+value) == nil {
			taken = append(taken, command+" "+f.Name)
		}
	})
	require.ElementsMatch(t, []string{
		"serve decision-log",
		"serve duration-window",
		"serve grace",
		"serve memory-bytes",
		"serve resume",
		"job cancel count",
		"job insert priority",
		"fanout priority",
		"job retry count",
		"request priority",
		"request wait-for-worker",
		"worker run worker-grace",
		"trace advise duration-window",
		"trace advise since",
		"trace advise until",
		"trace simulate duration-window",
		"trace demo batch",
		"trace demo seed",
		"trace export since",
		"trace export until",
		"trace generate batch",
		"trace generate seed",
	}, taken)
}

func TestHelpShowsNoDefaultOfZeroSeconds(t *testing.T) {
	for _, line := range []string{"job insert -h", "trace export -h"} {
		got := invocation{args: strings.Fields(line)}.runs(t)
		require.Contains(t, got.out, "duration", line)
		require.NotContains(t, got.out, "(default 0s)", line)
	}
}

func TestErrorOfABadNumberNamesItsSource(t *testing.T) {
	got := invocation{args: []string{"config", "show"}, env: map[string]string{"DISPATCHERD_LEASE": "-1s"}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, `environment DISPATCHERD_LEASE: bad value "-1s" for lease: must be at least 100ms`)
}

func TestServeHasAtMost50Flags(t *testing.T) {
	got := invocation{args: []string{"serve", "--help"}}.runs(t)
	require.Equal(t, exit.OK, got.code)
	flags := regexp.MustCompile(`(?m)^ {2,6}(-\w, )?--[a-z]`).FindAllString(got.out, -1)
	require.LessOrEqual(t, len(flags), 50)
	for _, group := range []string{"Sockets", "Postgres", "Policy", "Limits", "Retention", "Observability"} {
		require.Contains(t, got.out, "\n"+group+":\n")
	}
}

// isNumber reports whether a flag takes numbers or durations.
func isNumber(f *pflag.Flag) bool {
	switch f.Value.Type() {
	case "duration", "size", "int", "int8", "int16", "int32", "int64", "uint64", "float64":
		return true
	}
	return false
}
