package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// generatedDay writes a small day to a folder.
func generatedDay(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "day")
	got := invocation{
		args: []string{"trace", "generate", dir, "--calls", "300", "--batch", "60", "--agents", "27", "--workers", "4", "--seed", "3"},
	}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Equal(t, "360 jobs for 27 slots of 4 workers written to "+dir+"\n", got.err)
	return dir
}

func TestSimulatedScheduleIsWrittenAndCompared(t *testing.T) {
	dir := generatedDay(t)
	file := filepath.Join(t.TempDir(), "schedule.csv")
	got := invocation{args: []string{"trace", "simulate", dir, "-o", file}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Contains(t, got.out, "misplaced 0, affinity violations 0, placed twice 0; jobs lost 0\n")
	loaded, err := trace.Load(dir)
	require.NoError(t, err)
	schedule, err := trace.LoadSchedule(file)
	require.NoError(t, err)
	require.Equal(t, trace.Naive(loaded, scoring.Default()), schedule)

	got = invocation{args: []string{"trace", "simulate", dir, "--compare", file}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Equal(t, "360 of 360 lines as in "+file+"\n", got.err)

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	lines[7] = "7,1,1\n"
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600))
	got = invocation{args: []string{"trace", "simulate", dir, "--compare", file}}.runs(t)
	require.Equal(t, exit.Negative, got.code)
	require.Contains(t, got.err, "after 6 lines: expected job 7 at 1 ms on slot 1, got job 7 at ")
}

func TestPoliciesAreComparedSideBySide(t *testing.T) {
	dir := generatedDay(t)
	got := invocation{args: []string{"trace", "simulate", dir, "--weights", "default", "--weights", "on-demand=0,on-demand-ageing=0"}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Contains(t, got.out, "[1] default\n[2] on-demand=0,on-demand-ageing=0\n")
	require.Contains(t, got.out, "mean [1]  mean [2]")

	got = invocation{args: []string{"trace", "simulate", dir, "-o", "json"}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	var parsed struct {
		Simulations []struct {
			Weights string
			Report  trace.Report
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got.out), &parsed))
	require.Len(t, parsed.Simulations, 1)
	require.Equal(t, "article", parsed.Simulations[0].Weights, "expected schedules use the weights of the article")
	require.Equal(t, 360, parsed.Simulations[0].Report.Done)
}

func TestAdviceComparesExpectedDurations(t *testing.T) {
	dir := generatedDay(t)
	got := invocation{args: []string{"trace", "advise", dir}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	for _, word := range []string{
		"longest", "off", "no expected durations", "right within a factor of four", "30m0s", "1h0m0s", "15839 s", "4h0m0s",
		"24h0m0s",
	} {
		require.Contains(t, got.out, word)
	}
	got = invocation{args: []string{"trace", "advise", dir, "--duration-window", "10m", "-o", "json"}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	var parsed struct{ Advice trace.Advice }
	require.NoError(t, json.Unmarshal([]byte(got.out), &parsed))
	require.Len(t, parsed.Advice.Runs, 3)
	require.NotEmpty(t, parsed.Advice.Recommendation)
	got = invocation{args: []string{"trace", "simulate", dir, "--duration-window", "10m", "--weights", "default"}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
}

func TestTraceUsageErrorsSayWhatToDo(t *testing.T) {
	dir := generatedDay(t)
	bad := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bad, "slots.csv"), []byte("slot_id,worker,types\nx,w,a\n"), 0o600))
	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"simulate", exit.Usage, "got 0 arguments; its usage is: dispatcherd trace simulate DIR"},
		{"simulate /does/not/exist", exit.NotFound, "a trace is a folder with jobs.csv and slots.csv"},
		{"simulate " + bad, exit.Usage, `line 2, column 1: slot_id is "x"`},
		{"simulate " + dir + " -o yaml", exit.Usage, "table, json, or a file ending in .csv"},
		{"simulate " + dir + " --weights priority", exit.Usage, `"priority" is no weight: give KEY=NUMBER such as priority=1024`},
		{
			"simulate " + dir + " --weights speed=1", exit.Usage,
			`"speed=1" is no weight: give KEY=NUMBER such as priority=1024, with the keys priority, ageing,`,
		},
		{"simulate " + dir + " --weights priority=1.5", exit.Usage, `weight "priority" is "1.5": give a whole number`},
		{"simulate " + dir + " --weights ageing=0", exit.Usage, "without ageing nothing bounds how long a job waits"},
		{"simulate " + dir + " --weights on-demand-cap=1", exit.Usage, "give a duration such as 256s, or none"},
		{"simulate " + dir + " --weights default --weights article --compare x.csv", exit.Usage, "take one --weights, got 2"},
		{"simulate " + dir + " --compare /does/not/exist.csv", exit.Usage, "load schedule"},
		{"advise " + dir + " --duration-window 2000h", exit.Usage, "duration-window"},
		{"advise " + dir + " --duration-window 1us", exit.Usage, "the duration window is 1µs: set it to whole milliseconds"},
		{"simulate " + dir + " --duration-window 1500us", exit.Usage, "the duration window is 1.5ms: set it to whole milliseconds"},
		{"advise one two", exit.Usage, "got 2 arguments; its usage is: dispatcherd trace advise [DIR]"},
		{"generate " + bad + " --agents 3", exit.Usage, `--agents is "3": must be at least 27`},
	} {
		got := invocation{args: append([]string{"trace"}, strings.Fields(c.line)...)}.runs(t)
		require.Equal(t, c.code, got.code, "%s: %s", c.line, got.err)
		require.Contains(t, got.err, c.says)
	}
}

func TestReplayChecksItsFlagsFirst(t *testing.T) {
	dir := generatedDay(t)
	for line, says := range map[string]string{
		"replay " + dir:                                    "speed",
		"replay " + dir + " --speed 0.5":                   `--speed is "0.5": must be at least 1`,
		"replay " + dir + " --speed 1000000":               "choose a lower speed",
		"replay " + dir + " --speed 10 --weights ageing=0": "without ageing nothing bounds",
		"demo /does/not/exist":                             "a trace is a folder with jobs.csv and slots.csv",
		"demo --agents 5":                                  `--agents is "5": must be at least 27`,
		"demo one two":                                     "got 2 arguments; its usage is: dispatcherd trace demo [DIR]",
	} {
		got := invocation{args: append([]string{"trace"}, strings.Fields(line)...)}.runs(t)
		require.NotEqual(t, exit.OK, got.code, line)
		require.Contains(t, got.err, says, line)
		require.Empty(t, got.out, line)
	}
}
