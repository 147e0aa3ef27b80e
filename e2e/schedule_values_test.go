package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// invalidSchedule is a schedule with an invalid value.
type invalidSchedule struct {
	columns string // COLUMN=VALUE, separated by " & "; spec, every, once and type complete them
	says    string // column, value and rule, as every face but SQL says it
	sql     string // what Postgres says; empty = it accepts the row, and the column error says what the other faces say
}

var long = strings.Repeat("x", 300)

// invalidSchedules has values of every column, and of columns that do not fit together.
var invalidSchedules = []invalidSchedule{
	{"kind=daily", `kind "daily": must be cron, interval, startup or startup-worker`, "kind_is_cron_interval"},
	{"spec=", `cron expression "": must have 5 fields`, "spec_is_1_to_256_bytes"},
	{"spec=* * * *", `spec: cron expression "* * * *": must have 5 fields`, "spec_is_a_cron_expression"},
	{"spec=61 * * * *", `spec: cron expression "61 * * * *", minute "61": must`, "spec_is_a_cron_expression"},
	{"spec=0 0 31 2 *", `spec: cron expression "0 0 31 2 *", day of month "31": no such day in month "2"`, ""},
	{"spec=" + long, `spec: cron expression with 300 bytes: must have at most 256`, "spec_is_1_to_256_bytes"},
	{"kind=interval & spec=@daily & every=10m", `spec "@daily": only a schedule of kind cron has it`, "only_cron_has_spec"},
	{"kind=interval & every=", `every 0s: must be from 1s to 87840h0m0s`, "invalid input syntax for type interval"},
	{"kind=interval & every=999ms", `every 999ms: must be from 1s to 87840h0m0s`, "every_is_1_second_to_3660_days"},
	{"kind=interval & every=87841h", `every 87841h0m0s: must be from 1s to 87840h0m0s`, "every_is_1_second_to_3660_days"},
	{"kind=interval & every=often", `every "often": must be a duration from 1s to 87840h`, "invalid input syntax for type interval"},
	{"every=10m", `every 10m0s: only a schedule of kind interval has it`, "only_interval_has_every"},
	{"time_zone=Mars", `time_zone "Mars": must be a name of the time zone database`, `time zone "Mars" not recognized`},
	{"time_zone=europe/berlin", `time_zone "europe/berlin": must be a name of the time zone database`, ""},
	{"time_zone=CEST", `time_zone "CEST": must be a name of the time zone database`, ""},
	{"jitter=-1s", `jitter -1s: must be from 0s to 24h0m0s`, "jitter_is_0_to_1_day"},
	{"jitter=25h", `jitter 25h0m0s: must be from 0s to 24h0m0s`, "jitter_is_0_to_1_day"},
	{"jitter=some", `jitter "some": must be a duration from 0s to 24h`, "invalid input syntax for type interval"},
	{"starts_at=1969-12-31T23:59:59Z", `starts_at 1969-12-31T23:59:59Z: must be from 1970 to 2199`, "starts_at_is_between_1970_and_2200"},
	{
		"starts_at=1970-01-01T00:00:00+01:00",
		`starts_at 1970-01-01T00:00:00+01:00: must be from 1970 to 2199`,
		"starts_at_is_between_1970_and_2200",
	},
	{"starts_at=soon", `starts_at "soon": must be a time from 1970 to 2199`, "invalid input syntax for type timestamp"},
	{"ends_at=2200-01-01T00:00:00Z", `ends_at 2200-01-01T00:00:00Z: must be from 1970 to 2199`, "ends_at_is_between_1970_and_2200"},
	{"ends_at=never", `ends_at "never": must be a time from 1970 to 2199`, "invalid input syntax for type timestamp"},
	{
		"starts_at=2030-01-01T00:00:00Z & ends_at=2030-01-01T00:00:00Z",
		`ends_at 2030-01-01T00:00:00Z: must be after starts_at 2030-01-01T00:00:00Z`,
		"ends_at_is_after_starts_at",
	},
	{"kind=startup & once=", `once "": must be start, version or ever`, "once_is_start_version_or_ever"},
	{"kind=startup & once=daily", `once "daily": must be start, version or ever`, "once_is_start_version_or_ever"},
	{"once=ever", `once "ever": only a schedule of kind startup has it`, "only_startup_has_once"},
	{"kind=startup-worker & once=ever", `once "ever": only a schedule of kind startup has it`, "only_startup_has_once"},
	{"type=", `type "": type is missing`, "type_is_1_to_128_bytes"},
	{"type=" + long, `type "` + long + `": type has 300 bytes; at most 128 are allowed`, "type_is_1_to_128_bytes"},
	{"type=a\u200bb", `: type has the invisible character U+200B at byte 2`, "type_has_no_invisible_character"},
	{`payload={"a": "\u0000"}`, `payload: it contains`, "unsupported Unicode escape sequence"},
	{"priority=-1", `priority -1: must be from 0 to 10`, "priority_is_0_to_10"},
	{"priority=11", `priority 11: must be from 0 to 10`, "priority_is_0_to_10"},
	{"priority=high", `priority "high": must be a whole number from 0 to 10`, "invalid input syntax for type smallint"},
	{"max_attempts=-1", `max_attempts -1: must be from 1 to 32767`, "max_attempts_is_at_least_1"},
	{"max_attempts=32768", `max_attempts 32768: must be from 1 to 32767`, "out of range for type smallint"},
	{"max_attempts=1.5", `max_attempts 1.5: must be a whole number from 1 to 32767`, "invalid input syntax for type smallint"},
	{"timeout_ms=0", `timeout_ms 0: must be from 1 to 2147483647`, "timeout_ms_is_positive"},
	{"timeout_ms=2147483648", `timeout_ms 2147483648: must be from 1 to 2147483647`, "out of range for type integer"},
	{"timeout_ms=1m", `timeout_ms "1m": must be a whole number from 1 to 2147483647`, "invalid input syntax for type integer"},
	{"overlap=both", `overlap "both": must be skip, queue_one, queue_all, cancel_other or allow_all`, "overlap_is_skip_queue_one"},
	{"kind=startup-worker & keys=tenant:1", `keys "tenant:1": a schedule of kind startup-worker has none`, "startup_worker_has_no_keys"},
	{"catch_up=-1s", `catch_up -1s: must be from 0s to 8784h0m0s`, "catch_up_is_0_to_366_days"},
	{"catch_up=8785h", `catch_up 8785h0m0s: must be from 0s to 8784h0m0s`, "catch_up_is_0_to_366_days"},
	{"catch_up_most=-1", `catch_up_most -1: must be from 0 to 10000`, "catch_up_most_is_0_to_10000"},
	{"catch_up_most=10001", `catch_up_most 10001: must be from 0 to 10000`, "catch_up_most_is_0_to_10000"},
	{"paused=perhaps", `paused "perhaps": must be true or false`, "invalid input syntax for type boolean"},
	{"name=a b", `name "a b": must be 1 to 128 letters, digits, dots, underscores or hyphens`, "name_is_1_to_128_letters"},
	{"name=-a", `name "-a": must be 1 to 128 letters, digits, dots, underscores or hyphens`, "name_is_1_to_128_letters"},
}

// pairs returns the columns of the case. Others are as a schedule of the kind needs them.
func (c *invalidSchedule) pairs(name string) map[string]string {
	p := map[string]string{"name": name, "type": "pdf", "kind": "cron"}
	for pair := range strings.SplitSeq(c.columns, " & ") {
		column, value, _ := strings.Cut(pair, "=")
		p[column] = value
	}
	return complete(p)
}

// complete adds the column that a schedule of the kind needs.
func complete(p map[string]string) map[string]string {
	needs := map[string][2]string{"cron": {"spec", "@daily"}, "interval": {"every", "10m"}, "startup": {"once", "start"}}[p["kind"]]
	if _, given := p[needs[0]]; !given && needs[0] != "" {
		p[needs[0]] = needs[1]
	}
	return p
}

// body returns columns as a JSON object. Texts that are no JSON value are strings.
func body(pairs map[string]string) string {
	var members []string
	for column, value := range pairs {
		raw := slices.Contains([]string{"payload", "priority", "max_attempts", "timeout_ms", "catch_up_most", "paused"}, column) &&
			json.Valid([]byte(value))
		if !raw {
			text, _ := json.Marshal(value)
			value = string(text)
		}
		if value != `""` || column == "kind" || column == "type" {
			members = append(members, fmt.Sprintf("%q: %s", column, value))
		}
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// assignments returns columns as arguments of `schedule set`.
func assignments(pairs map[string]string) (args []string) {
	for column, value := range pairs {
		if column != "name" {
			args = append(args, column+"="+value)
		}
	}
	return args
}

// insert returns the statement and its arguments for columns.
func insert(pairs map[string]string) (sql string, args []any) {
	var columns, values []string
	for column, value := range pairs {
		columns, args = append(columns, column), append(args, value)
		values = append(values, fmt.Sprintf("(x ->> %d)::%s", len(args)-1, map[string]string{
			"every": "interval", "jitter": "interval", "catch_up": "interval", "starts_at": "timestamptz", "ends_at": "timestamptz",
			"payload":  "jsonb",
			"priority": "smallint", "max_attempts": "smallint", "timeout_ms": "int", "catch_up_most": "int", "paused": "boolean",
		}[column]))
		values[len(values)-1] = strings.TrimSuffix(values[len(values)-1], "::")
	}
	text, _ := json.Marshal(args)
	return "INSERT INTO dispatcherd.schedules (" + strings.Join(
			columns,
			", ",
		) + ") SELECT " + strings.Join(
			values,
			", ",
		) + " FROM (SELECT $1::text::json AS x) j", []any{
			string(text),
		}
}

var examples = regexp.MustCompile(`for example (?:kind "([a-z]+)" with (\w+) )?("[^"\n]*"|\{.*\}|\S+)`)

// example returns the columns with the example of an error in the place of the invalid value.
func example(t *testing.T, pairs map[string]string, says string) map[string]string {
	t.Helper()
	m := examples.FindStringSubmatch(says)
	require.NotNil(t, m, "an example: %s", says)
	column := regexp.MustCompile(`(\w+)(: cron expression.*| ("[^"]*"|\S+))?:`).FindStringSubmatch(says)[1]
	fixed := map[string]string{"name": "example", "type": pairs["type"], "kind": pairs["kind"]}
	if m[1] != "" {
		fixed["kind"], column = m[1], m[2]
	} else {
		for name, value := range pairs {
			if name != "name" {
				fixed[name] = value
			}
		}
	}
	value := strings.Trim(m[3], `"`)
	if item := regexp.MustCompile(`, [a-z ]+ "([^"]*)": must`).FindStringSubmatch(says); item != nil { // of one field of the expression
		value = strings.Replace(pairs[column], item[1], value, 1)
	}
	fixed[column] = value
	return complete(fixed)
}

// Whatever face gets an invalid value rejects it with the same words: column, value, rule and an example that is accepted.
// If SQL accepts a row that cannot run, the column error has these words.
func TestInvalidSchedulesAreRejectedAlike(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	c := h.caller()
	own, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(t, err)
	defer own.Close()
	put := func(pairs map[string]string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
			"http://d/v1/schedules/"+strings.ReplaceAll(pairs["name"], " ", "%20"), strings.NewReader(body(pairs)))
		require.NoError(t, err)
		res, err := c.client.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		var p client.Problem
		require.NoError(t, json.Unmarshal(text, &p))
		return res.StatusCode, p.Detail
	}
	accepted := map[string]string{} // what the column error must say, by name
	for i, bad := range invalidSchedules {
		name := fmt.Sprintf("s%03d", i)
		pairs := bad.pairs(name)
		args := append([]string{"schedule", "set", "--", pairs["name"]}, assignments(pairs)...)
		status, says := put(pairs)
		require.Equal(t, http.StatusBadRequest, status, "%s: %s", bad.columns, says)
		says = strings.TrimPrefix(says, "schedule \""+name+"\": invalid schedule: ")
		says = strings.TrimPrefix(says, "invalid schedule: ")
		require.Contains(t, says, bad.says)
		fixed := example(t, pairs, says)
		status, problem := put(fixed)
		require.Contains(t, []int{http.StatusOK, http.StatusCreated}, status, "the example of %s: %s", says, problem)

		got := h.onAPI("", args...)
		require.Equal(t, exit.Usage, got.code, "%s: %s", bad.columns, got.err)
		require.Contains(t, got.err, bad.says)
		require.Contains(t, got.err, "for example")
		v := client.NewSchedule()
		if json.Unmarshal([]byte(body(pairs)), &v) == nil {
			_, err := own.Schedules().Set(t.Context(), v)
			require.ErrorContains(t, err, bad.says)
		}
		sql, values := insert(pairs)
		_, err := w.db.Exec(t.Context(), sql, values...)
		if bad.sql != "" {
			require.ErrorContains(t, err, bad.sql, bad.columns)
			continue
		}
		require.NoError(t, err, bad.columns)
		accepted[name] = says
	}
	for name, says := range accepted {
		eventually(t, func() bool {
			return w.number("SELECT count(*) FROM dispatcherd.schedules WHERE name = $1 AND error = $2", name, says) == 1
		}, func() string { return name + ": the column error is not " + says })
	}
	require.Equal(t, len(accepted)+2, w.number("SELECT count(*) FROM dispatcherd.schedules"), "those that SQL accepted, and the examples")
}
