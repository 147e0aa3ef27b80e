package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestEachTableRowIsOneLine(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeTable(&b, "id, error", [][]any{
		{"1", "two\nlines\x1b[31m \u202efdp\u2028"}, {"22", ""}, {"333", "plain"},
	}))
	require.Equal(t, "ID   ERROR\n1    two lines<U+001B>[31m <U+202E>fdp \n22   -\n333  plain\n", b.String())
}

// Every kind of output is checked, because a terminal obeys whatever it receives.
func TestNoOutputContainsInvisibleCharacters(t *testing.T) {
	const foreign = "a\u202eb\u200b\u009b1m\x1b\U000e0041"
	for _, name := range []string{"table", "json", "jsonl"} {
		var b strings.Builder
		c := &Invocation{Console: Console{Out: &b, Err: &b}}
		c.Format = name
		c.Say("type %s", foreign)
		require.NoError(t, c.PrintLine("x", foreign, "%s", foreign))
		require.NoError(t, c.PrintValue(foreign))
		require.NoError(t, PrintRows(c, "x", []string{foreign}, "x", func(value *string) []any { return []any{*value} }))
		require.NoError(t, PrintFacts(c, "x", new(foreign), func(add Add, value *string) { add("x", "%s", *value) }))
		require.NotContains(t, strings.Map(func(r rune) rune {
			if dispatcherd.Invisible(r) && r != '\n' {
				return '!'
			}
			return r
		}, strings.ReplaceAll(b.String(), "!", "")), "!", b.String())
	}
	var value string
	require.NoError(t, json.Unmarshal([]byte(`"`+replaceInvisible(foreign, jsonEscape)+`"`), &value))
	require.Equal(t, foreign, value, "JSON keeps the value")
}

func TestListWithoutElementsIsNotNull(t *testing.T) {
	var b strings.Builder
	c := &Invocation{Console: Console{Out: &b, Format: "json"}}
	require.NoError(t, PrintRows(c, "jobs", []int(nil), "id", nil))
	require.JSONEq(t, `{"schema_version": 1, "jobs": []}`, b.String())
}

func TestJSONLinesHaveOneValueEach(t *testing.T) {
	var b strings.Builder
	c := &Invocation{Console: Console{Out: &b, Format: "jsonl"}}
	require.NoError(t, PrintRows(c, "jobs", []map[string]int{{"id": 2}, {"id": 1}}, "id", nil))
	require.NoError(t, PrintFacts(c, "job", &map[string]any{"id": 3, "payload": json.RawMessage("[\n1, \"<\"]")}, nil))
	require.NoError(t, PrintRows(c, "jobs", []int{}, "", nil))
	require.NoError(t, PrintRows(c, "jobs", []int(nil), "", nil))
	require.Equal(t, []string{`{"id":2}`, `{"id":1}`, `{"id":3,"payload":[1,"<"]}`}, strings.Fields(b.String()))
}

func TestAdviceOfAnAlarmIsNotCutOff(t *testing.T) {
	text := `type "long": 3 waiting, the oldest for 1m30s, and no slot supports the type: worker render-1 supports it, but was drained`
	var b bytes.Buffer
	s := contract.Status{Alarms: []contract.Alarm{{Text: text}}}
	s.Dispatchers = []contract.Member{{Name: "a", State: "drained", Answered: true, Summary: contract.Summary{
		SlotCounts: contract.SlotCounts{Slots: 4, Free: 2, Busy: 1, Drained: 1}}}}
	writeStatus(&b, &s, 60)
	require.Contains(t, b.String(), `ALARM    type "long": 3 waiting, the oldest for 1m30s, and
         no slot supports the type: worker render-1 supports
         it, but was drained
`)
	require.Contains(t, b.String(), `DISPATCHER  STATE    HEARTBEAT  SLOTS  BUSY  RESERVED  FREE  DRAINED  ENDED/S  FAILED
a           drained  0s         4      1     0         2     1        0.0      0
`)
}
