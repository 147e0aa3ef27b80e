package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// readAll returns the types of all valid lines and the errors of the invalid ones.
// maxLine is the bound of the tests.
const maxLine = 16 << 20

func readAll(t *testing.T, r io.Reader) (types, complaints []string, end error) {
	t.Helper()
	lines := newLineReader(r, maxLine)
	for {
		bad, err := lines.next()
		switch {
		case bad != nil:
			complaints = append(complaints, fmt.Sprintf("line %d: %v", lines.number, bad))
		case err == nil:
			types = append(types, lines.job.Type)
		case errors.Is(err, io.EOF):
			return types, complaints, nil
		default:
			return types, complaints, err
		}
	}
}

func TestEveryBadLineIsNamedWithItsNumberAndReason(t *testing.T) {
	for line, want := range map[string]string{
		`{}`:                            "line 1: type is missing",
		`[]`:                            "line 1: it cannot be the JSON array: write a JSON object",
		`"pdf"`:                         "line 1: it cannot be the JSON string: write a JSON object",
		`null`:                          "line 1: type is missing",
		`{"type":"pdf"`:                 "line 1: it is not JSON (it ends too early)",
		`{"type":"pdf"} {"type":"pdf"}`: "line 1: something follows the JSON object",
		`{"type":"pdf"},`:               "line 1: something follows the JSON object",
		`{type:"pdf"}`:                  "line 1: it is not JSON (byte 2)",
		`{"type":"pdf","keys":["a"]}`: `line 1: keys cannot be the JSON array: write one string of words, for example "tenant:42 ` +
			`stripe*3"`,
		`{"type":7}`:                      "line 1: type cannot be the JSON number: write a string",
		`{"type":"pdf","priority":11}`:    "line 1: priority 11 is outside 0..10",
		`{"type":"pdf","priority":-1}`:    "line 1: priority -1 is outside 0..10",
		`{"type":"pdf","priority":1.5}`:   "line 1: priority cannot be the JSON number 1.5: write a whole number",
		`{"type":"pdf","priority":300}`:   "line 1: priority cannot be the JSON number 300: write a whole number",
		`{"type":"pdf","max_attempts":0}`: "line 1: max_attempts 0 is less than 1",
		`{"type":"pdf","timeout_ms":0}`:   "line 1: timeout_ms 0 is less than 1",
		`{"type":"pdf","expected_ms":0}`:  "line 1: expected_ms 0 is less than 1",
		`{"type":"pdf","traceparent":""}`: `line 1: traceparent "" must be 00-TRACE-PARENT-FLAGS with 32, 16 and 2 hexadecimal digits ` +
			`in lower case, TRACE and PARENT not zero`,
		`{"type":"pdf","expected_ms":2147483648}`: "line 1: expected_ms cannot be the JSON number 2147483648: write a whole number " +
			"from 1 to 2147483647",
		`{"type":"pdf","expected_ms":"1h"}`: "line 1: expected_ms cannot be the JSON string: " +
			"write a whole number from 1 to 2147483647",
		`{"type":"pdf","run_at":"2200-01-01T00:00:00Z"}`: "line 1: run_at lies outside the years 1970 to 2199",
		`{"type":"pdf","run_at":"tomorrow"}`:             `line 1: a time is a text in RFC 3339, such as "2026-01-31T08:00:00Z"`,
		`{"type":"pdf","run_at":5}`:                      `line 1: a time is a text in RFC 3339, such as "2026-01-31T08:00:00Z"`,
		`{"type":"pdf","prio":3}`: `line 1: there is no field "prio"; the fields are type, priority, payload, run_at, ` +
			`max_attempts, timeout_ms, expected_ms, backoff, keys, traceparent, parent, unique_key, unique_for, run_in`,
		`{"Type":"pdf"}`: `line 1: there is no field "Type"; the fields are type, priority, payload, run_at, max_attempts, ` +
			`timeout_ms, expected_ms, backoff, keys, traceparent, parent, unique_key, unique_for, run_in`,
		`{"type":"pdf","\u0070ayload":1}`: `line 1: there is no field "\\u0070ayload"; the fields are type, priority, payload, ` +
			`run_at, max_attempts, timeout_ms, expected_ms, backoff, keys, traceparent, parent, unique_key, unique_for, run_in`,
		`{"type":"a","payload":{},"type":"b"}`:    "line 1: type is given twice",
		`{"payload":{"\"":["{"]},"payload":"\\"}`: "line 1: payload is given twice",
		`{"type":"a\u2028b"}`:                     "line 1: type has the invisible character U+2028 at byte 2: remove it",
		`{"type":"a\u0000b"}`:                     "line 1: type has the invisible character U+0000 at byte 2: remove it",
		`{"type":"pdf","payload":"\u0000"}`: "line 1: payload cannot be sent to a worker: it contains a string with \\u0000, which " +
			"Postgres cannot store",
		`{"type":"pdf","payload":"\ud83d"}`: "line 1: payload cannot be sent to a worker: it contains a string with " +
			"half a surrogate pair, which Postgres cannot store",
		`{"type":"pdf","payload":"\ude00x"}`: "line 1: payload cannot be sent to a worker: it contains a string with " +
			"half a surrogate pair, which Postgres cannot store",
		`{"type":"pdf","payload":"\ud83d\n"}`: "line 1: payload cannot be sent to a worker: it contains a string with " +
			"half a surrogate pair, which Postgres cannot store",
		`{"type":"pdf","payload":[1e1024]}`: "line 1: payload cannot be sent to a worker: it contains a number of more than 1,024 " +
			"characters, written out",
		`{"type":"pdf","payload":` + strings.Repeat("[", 129) + strings.Repeat("]", 129) + `}`: "line 1: payload cannot be sent to " +
			"a worker: it contains more than 128 nested arrays and objects; flatten it",
		"{\"type\":\"\xff\"}":                                            "line 1: it is not UTF-8",
		`{"type":"pdf","parent":0}`:                                      "line 1: parent 0 is not the id of a batch",
		`{"type":"pdf","unique_key":""}`:                                 "line 1: unique_key must have 1 to 512 bytes",
		`{"type":"pdf","unique_key":"` + strings.Repeat("k", 513) + `"}`: "line 1: unique_key has 513 bytes, must have 1 to 512, or be left out",
		`{"type":"pdf","unique_for":"1h"}`:                               "line 1: unique_for 1h0m0s needs a unique_key: give both or neither",
		`{"type":"pdf","unique_key":"k","unique_for":"0s"}`: "line 1: unique_for 0s must be more than 0: give a time, for example 1h, " +
			"or leave it out",
		`{"type":"pdf","unique_key":"k","parent":1,"unique_for":"1s"}`: "line 1: unique_for 1s is not possible for a member of a " +
			"batch (parent 1): leave one out",
		`{"type":"pdf","unique_key":"k","unique_for":"1h"}`: "line 1: unique_for 1h0m0s is not possible in a stream of jobs: " +
			"insert the job alone",
		`{"type":"pdf","run_in":"1h"}`: "line 1: run_in 1h0m0s is not possible in a stream of jobs: " +
			"write run_at, or insert the job alone",
		`{"type":"pdf","run_in":"-1s"}`:                                "line 1: run_in -1s is negative: give 0s or more",
		`{"type":"pdf","run_in":"5s","run_at":"2026-01-02T03:04:05Z"}`: "line 1: run_in 5s and run_at are both given: leave one out",
		`{"type":"pdf","unique_key":"k","unique_for":"long"}`: `line 1: duration "long": must be a number with a unit (s, m, h, d), ` +
			`for example "1h30m"`,
		`{"type":"` + strings.Repeat("x", dispatcherd.MaxTypeLength+1) + `"}`: "line 1: type has 129 bytes; at most 128 are allowed",
	} {
		types, complaints, err := readAll(t, strings.NewReader(line))
		require.NoError(t, err)
		require.Empty(t, types, line)
		require.Equal(t, []string{want}, complaints, line)
	}
}

func TestNoReasonQuotesThePayload(t *testing.T) {
	for _, line := range []string{
		`{"type":"pdf","payload":{"card":"secret"}`, `{"type":"pdf","payload":secret}`, `{"type":["secret"]}`,
		`{"type":"pdf","run_at":"secret"}`, `secret`, `{"type":"pdf"} "secret"`,
	} {
		_, complaints, err := readAll(t, strings.NewReader(line))
		require.NoError(t, err)
		require.Len(t, complaints, 1)
		require.NotContains(t, complaints[0], "secret")
	}
}

func TestValidLinesOfEveryFormAreAccepted(t *testing.T) {
	input := "\xef\xbb\xbf{\"type\":\"bom\"}\r\n\n  \t\n{\"type\":\"spaces\"}  \n" +
		`{"type":"full","priority":10,"payload":{"a":[1,"\ud83d\ude00 \\u0000"]},"run_at":"2026-01-31T08:00:00+01:00","max_attempts":3}` + "\n" +
		`{"type":"nested","payload":{"type":1,"Type":[{"type":2,"type":"payload"}],"\\\"":3},"priority":1}` + "\n" +
		`{"type":"nulls","priority":null,"payload":null,"run_at":null,"max_attempts":null}` + "\n" + `{"type":"no newline at the end"}`
	types, complaints, err := readAll(t, iotest.OneByteReader(strings.NewReader(input)))
	require.NoError(t, err)
	require.Empty(t, complaints)
	require.Equal(t, []string{"bom", "spaces", "full", "nested", "nulls", "no newline at the end"}, types)

	lines := newLineReader(strings.NewReader(input), maxLine)
	next := func() {
		bad, err := lines.next()
		require.NoError(t, errors.Join(bad, err))
	}
	for range 3 {
		next()
	}
	require.Equal(t, dispatcherd.Priority(10), lines.job.Priority)
	require.Equal(t, int16(3), *lines.job.MaxAttempts)
	require.True(t, lines.job.RunAt.Equal(time.Date(2026, 1, 31, 7, 0, 0, 0, time.UTC)))
	require.JSONEq(t, `{"a":[1,"😀 \\u0000"]}`, string(lines.job.Payload))
	require.Equal(t, 5, lines.number)
	next()
	next()
	require.Zero(t, lines.job.Priority, "null is the table's default")
	next()
	_, err = lines.next()
	require.ErrorIs(t, err, io.EOF)
}

func TestTooLongLineEndsReading(t *testing.T) {
	_, _, err := readAll(t, io.MultiReader(strings.NewReader("{\"type\":\"a\"}\n"), strings.NewReader(strings.Repeat("x", maxLine+1))))
	require.ErrorContains(t, err, "line 2 has more than 16777216 bytes")
	_, _, err = readAll(t, iotest.ErrReader(errors.New("disk on fire")))
	broken := rest.InvalidJob.Of("reading line 1: disk on fire")
	require.Equal(t, broken, err)
	_, _, err = readAll(t, io.MultiReader(strings.NewReader(`{"type":"a`), iotest.ErrReader(errors.New("disk on fire"))))
	require.Equal(t, broken, err, "not an error of the line that it cuts")
}

// TestJobSurvivesARoundTripThroughJSON checks that a job within the limits is
// unchanged after it was written and parsed as a line of JSON.
func TestJobSurvivesARoundTripThroughJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		priority := dispatcherd.Priority(rapid.IntRange(0, 10).Draw(rt, "priority"))
		text := rapid.String().Filter(func(s string) bool { return !strings.ContainsRune(s, 0) })
		typ := rapid.StringOfN(rapid.RuneFrom([]rune("abcäö \"\\")), 1, 20, dispatcherd.MaxTypeLength).Draw(rt, "type")
		payload, err := json.Marshal(map[string]string{"text": text.Draw(rt, "text")})
		require.NoError(rt, err)
		line, err := json.Marshal(contract.NewJob{JobColumns: contract.JobColumns{Type: typ, Priority: priority, Payload: payload}})
		require.NoError(rt, err)
		job, err := parseJob(line)
		require.NoError(rt, err)
		require.Equal(rt, typ, job.Type)
		require.Equal(rt, priority, job.Priority)
		require.JSONEq(rt, string(payload), string(job.Payload))
	})
}

// Only parseJob reports empty input. A reader of lines skips empty lines.
func TestEmptyInputIsReportedAsEmpty(t *testing.T) {
	for _, text := range []string{"", " ", "\r\n"} {
		_, err := parseJob([]byte(text))
		require.EqualError(t, err, "it is empty: write a JSON object")
	}
}

// A line says of which batch the job is a member, and names its unique key.
func TestMembershipIsInTheLineOfAJob(t *testing.T) {
	row := claim.New{Type: "pdf", Payload: []byte(`{}`), Parent: 7, UniqueKey: "k"}
	job, err := parseJob([]byte(`{"type":"pdf","payload":{},"parent":7,"unique_key":"k"}`))
	require.NoError(t, err)
	require.Equal(t, row, rowOf(&job))
}

func FuzzParseJob(f *testing.F) {
	f.Add([]byte(`{"type":"pdf","payload":"\ud83d\ude00"}`))
	f.Add([]byte(`{"type":"pdf","priority":3,"run_at":"2026-01-31T08:00:00Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		job, err := parseJob(line)
		if err == nil {
			require.NoError(t, checkJob(&job), "an accepted job must satisfy the limits")
			require.NotEmpty(t, job.Type)
			require.True(t, len(job.Payload) == 0 || json.Valid(job.Payload))
			var named map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(line, &named))
			require.Subset(t, rest.Members(reflect.TypeFor[contract.NewJob]()), slices.Collect(maps.Keys(named)))
		}
	})
}

// Up to a hundred errors are kept and printed together, so each must be short
// whatever the line contains.
func TestReasonsAreShortForLinesOfAnyLength(t *testing.T) {
	for _, line := range []string{
		`{"type":"x","priority":` + strings.Repeat("9", 1<<20) + `}`,
		`{"` + strings.Repeat("x", 1<<20) + `":1}`,
		`{"type":"` + strings.Repeat("x", 1<<20) + `"}`,
		`{"type":"x","run_at":"` + strings.Repeat("9", 1<<20) + `"}`,
		strings.Repeat("9", 1<<20),
	} {
		_, err := parseJob([]byte(line))
		require.Error(t, err)
		require.Less(t, len(err.Error()), 300)
	}
}
