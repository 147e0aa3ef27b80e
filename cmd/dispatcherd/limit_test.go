package main

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Jobs that hold and wait for keys, at fixed times.
const jobsWithKeys = `
INSERT INTO dispatcherd.dispatchers (name, lease) VALUES ('a', '1 day');
INSERT INTO dispatcherd.jobs (type, priority, keys) VALUES
	('pdf', 0, 'gpu*3 tenant:42'), ('pdf', 0, 'gpu*2'), ('pdf', 0, 'retried'), ('pdf', 0, 'tenant:42'),
	('pdf', 10, 'tenant:42*all other'), ('pdf', 0, 'tenant:42'), ('pdf', 0, 'gpu*4');
UPDATE dispatcherd.jobs SET run_at = '2026-01-02 03:04:05Z';
UPDATE dispatcherd.jobs SET run_at = '2199-01-01' WHERE id = 7;
UPDATE dispatcherd.jobs SET fence = 4294967297, status = 'running', dispatcher = (SELECT id FROM dispatcherd.dispatchers),
	attempt = 1, started_at = '2026-01-02 03:04:05Z'
WHERE id = 1;
UPDATE dispatcherd.jobs SET fence = 4294967298 WHERE id = 2;
UPDATE dispatcherd.jobs SET fence = -4294967299 WHERE id = 3;
INSERT INTO dispatcherd.limits (key, capacity) VALUES ('gpu', 8);
UPDATE dispatcherd.controller SET dispatcher = (SELECT id FROM dispatcherd.dispatchers)`

func TestLimitsAndKeysAreSetAndShown(t *testing.T) {
	s := serving(t, jobsWithKeys)
	text := transcript(t, s,
		"limit list",
		"limit set tenant:* capacity=2 rate=3 per=1s scope=dispatcher on_retry=wait",
		"limit set tenant:* capacity=0",
		"limit set tenant:* rate= per= capacity=none",
		"limit list",
		"limit list --limit 1",
		"limit set tenant:* capacity= on_retry= -o json",
		"limit set gpu rate=3",
		"limit set gpu per=1s",
		"limit set gpu rate=3 per=1ms",
		"limit set gpu capacity=-1",
		"limit set gpu capacity=many",
		"limit set gpu rate=0",
		"limit set gpu per=1",
		"limit set gpu scope=host",
		"limit set gpu on_retry=no",
		"limit set gpu color=red",
		"limit set gpu capacity=8",
		"limit set gpu capacity=1 capacity=2",
		"limit set gpu rate=-1 per=1s",
		"limit set gpu red",
		"limit set gpu",
		"limit set g*u capacity=2",
		"limit rm none",
		"limit rm tenant:*",
		"key list",
		"key list --limit 1 --cursor Z3B1",
		"key show tenant:42",
		"key show retried",
		"key show unknown",
		"key show a*3",
		"key show",
	)
	text = regexp.MustCompile(`\(\d+h[^)]+\)`).ReplaceAllString(text, "(AGE)")
	requireGolden(t, "limit.txt", regexp.MustCompile(`"version": [1-9]\d+`).ReplaceAllString(text, `"version": VERSION`))
}

// A list without elements is one in JSON, too.
func TestListsWithoutElementsAreEmptyInJSON(t *testing.T) {
	s := serving(t, "")
	for _, line := range []string{"limit list", "key list", "batch list", "flow list", "schedule list", "job list"} {
		require.Empty(t, s.ask(t, "", line, "-o", "jsonl").out, line)
	}
}

func TestJSONOfEveryLimitCommandParses(t *testing.T) {
	s := serving(t, jobsWithKeys)
	for _, c := range []struct{ line, key string }{
		{"limit list", "limits"}, {"limit set k capacity=2", "limit"}, {"limit rm k", "removed"}, {"key list", "keys"}, {"key show gpu", "key"},
	} {
		got := s.ask(t, "", c.line, "-o", "json")
		require.Equal(t, exit.OK, got.code, got.err)
		var parsed map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(got.out), &parsed), c.line)
		require.Contains(t, parsed, c.key)
	}
}
