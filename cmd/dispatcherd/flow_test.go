package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Two batches and a flow that has ended, at fixed times.
const batchesAndFlows = `
SELECT dispatcherd.open_batch('{"type": "report"}', 'ended', 'nightly'), dispatcherd.open_batch();
INSERT INTO dispatcherd.jobs (type, parent) SELECT 'page', 1 FROM generate_series(1, 2);
SELECT dispatcherd.insert_flow('{"name": "etl", "nodes": [
	{"name": "load", "type": "load"}, {"name": "left", "type": "half", "after": ["load"]},
	{"name": "right", "type": "half", "after": ["load"]}, {"name": "sum", "type": "sum", "after": ["left", "right", 3]},
	{"name": "alarm", "type": "mail", "after": ["sum"], "run_when": "failed"}]}');
UPDATE dispatcherd.batches SET opened_at = '2026-01-02 03:04:05Z',
	sealed_at = CASE WHEN kind = 'flow' THEN '2026-01-02 03:04:05Z'::timestamptz END;
UPDATE dispatcherd.jobs SET status = 'done', started_at = '2026-01-02 03:04:06Z', finished_at = '2026-01-02 03:04:07.5Z', attempt = 1
WHERE type = 'load';
UPDATE dispatcherd.jobs SET status = 'failed', started_at = '2026-01-02 03:04:08Z', finished_at = '2026-01-02 03:05:08Z',
	attempt = 1, errors = '[{"error": "torn"}]'
WHERE id = 7`

func TestBatchesAndFlowsAreShownAndChanged(t *testing.T) {
	s := serving(t, batchesAndFlows)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	self := file("self.json", `{"nodes": [{"name": "a", "type": "x", "after": ["a"]}]}`)
	after := file("after.json", `{"nodes": [{"name": "a", "type": "x", "after": [5]}]}`)
	torn := file("torn.json", `{"nodes": [`)
	good := file("good.json", `{"nodes": [{"name": "a", "type": "x"}]}`)
	text := transcript(t, s,
		"batch list",
		"batch list --state open --limit 1",
		"batch list --state lost",
		"batch show 1",
		"batch show 2",
		"batch show 99",
		"batch show x",
		"batch show",
		"batch seal 1",
		"job insert --type page --parent 1",
		"job insert --type page --parent 99",
		"job insert --type page --unique-key k",
		"job insert --type page --unique-key k --unique-for 1h",
		"job insert --type page --unique-for 1h",
		"job insert --type page --parent 2 --unique-key k",
		"batch cancel 1",
		"batch show 1",
		"batch seal 99",
		"batch open --name weekly",
		`batch open --callback {"type":"x","color":"red"}`,
		`batch open --callback {`,
		`batch open --callback {"type":"x"} --run-when never`,
		`batch open --callback {"type":"x","type":"y"}`,
		"batch open --name=",
		"batch cancel 1",
		"batch seal 1",
		"batch cancel 13",
		"batch retry 13",
		"batch cancel 5",
		"batch retry 5",
		"batch seal 5",
		"flow list",
		"flow show 5",
		"flow show 1",
		"flow insert "+good,
		"flow insert "+self,
		"flow insert "+torn,
		"flow insert none.json",
		"flow insert",
		"flow repair 5",
		"flow repair 13",
		"flow cancel 2",
		"flow cancel 13",
		"flow retry 2",
		"job get 5",
		"job cancel 2",
		"job wait 2",
		"flow insert "+after,
		"flow cancel 99",
		"flow retry 99",
	)
	text = regexp.MustCompile(`\(\d+h[^)]+\)`).ReplaceAllString(text, "(AGE)")
	requireGolden(t, "flow.txt", strings.ReplaceAll(text, dir+"/", ""))
}

func TestJSONOfEveryFlowCommandParses(t *testing.T) {
	s := serving(t, batchesAndFlows)
	for _, c := range []struct{ line, in, key string }{
		{"batch list", "", "batches"}, {"batch show 1", "", "batch"}, {"batch open", "", "batch"}, {"batch seal 1", "", "sealed"},
		{"batch cancel 1", "", "cancelled"},
		{"batch retry 1", "", "retried"}, {"flow list", "", "flows"}, {"flow show 5", "", "flow"},
		{"flow insert -", `{"nodes": [{"name": "a", "type": "x"}]}`, "flow"},
		{"flow repair 5", "", "repaired"}, {"flow cancel 5", "", "cancelled"}, {"flow retry 5", "", "retried"},
	} {
		got := s.ask(t, c.in, c.line, "-o", "json")
		require.Equal(t, exit.OK, got.code, "%s: %s", c.line, got.err)
		var parsed map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(got.out), &parsed), c.line)
		require.Contains(t, parsed, c.key)
	}
}
