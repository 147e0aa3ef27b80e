package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// MaxTimeout is the longest timeout of an attempt that a row can hold.
const MaxTimeout = math.MaxInt32 * time.Millisecond

// DefaultMaxAttempts is max_attempts of a job if neither it nor its type has one.
const DefaultMaxAttempts = 5

// New describes a job to insert. A zero value means the default of the table.
type New struct {
	Type        string
	Payload     json.RawMessage
	Priority    dispatcherd.Priority
	RunAt       time.Time         // zero means now, by the database clock
	MaxAttempts int               // 0 = that of its type
	Backoff     string            // how long it waits after a failure, see timing.Policy; "" = as its type says
	Timeout     time.Duration     // 0 = the timeout of its type; rounded up to milliseconds, at most 596 hours
	Expected    time.Duration     // how long an attempt probably takes; 0 = unknown; rounded up to milliseconds
	Keys        string            // up to four words KEY, KEY*COST or KEY*all; "" = none
	Parent      dispatcherd.JobID // an open batch whose member the job is; 0 = none
	UniqueKey   string            // that no other pending or running job has; "" = none
	Traceparent string            // W3C trace context; "" = none
}

// Values returns the values of [Columns]. The payload is a string, because every driver and protocol sends a string as
// text.
func (n *New) Values() ([]any, error) {
	timeout, long := milliseconds("its timeout", n.Timeout, MaxTimeout, " for the limit of its type")
	expected, longer := milliseconds("its expected duration", n.Expected, dispatcherd.MaxExpected, "")
	v := []any{
		n.Type, cmp.Or(string(n.Payload), "{}"), int16(n.Priority), orNull(int16(n.MaxAttempts)), timeout, orNull(n.RunAt), orNull(n.Keys),
		orNull(int64(n.Parent)), orNull(n.UniqueKey), expected, orNull(n.Traceparent), orNull(n.Backoff),
	}
	var badTrace error
	switch {
	case n.MaxAttempts < 0 || n.MaxAttempts > math.MaxInt16:
		return v, fmt.Errorf("max_attempts is %d, must be 1 to %d, or left out for the default", n.MaxAttempts, math.MaxInt16)
	case n.Parent < 0:
		return v, fmt.Errorf("parent is %d, must be the id of a batch that is open, or left out", n.Parent)
	case n.Traceparent != "":
		badTrace = dispatcherd.CheckTraceparent(n.Traceparent)
	}
	return v, cmp.Or(parsed(n.Backoff, timing.ParsePolicy), long, parsed(n.Keys, permits.Parse), CheckUniqueKey(n.UniqueKey), badTrace, longer)
}

// orNull returns a value of a column, or nil for the zero value.
func orNull[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

// parsed returns why a text cannot be parsed; "" = none.
func parsed[T any](text string, parse func(string) (T, error)) error {
	if text == "" {
		return nil
	}
	_, err := parse(text)
	return err
}

// milliseconds returns the value of a column with milliseconds, rounded up; 0 = none.
func milliseconds(what string, d, most time.Duration, without string) (any, error) {
	if d == 0 {
		return nil, nil
	}
	if d < 0 || d > most {
		return nil, fmt.Errorf("%s is %v, must be more than 0 and at most %v, or left out%s", what, d, most, without)
	}
	return int32((d-1)/time.Millisecond + 1), nil
}

// Columns are the columns of a job that producers write, in the order of the values of an insert.
var Columns = []string{
	"type", "payload", "priority", "max_attempts", "timeout_ms", "run_at", "keys", "parent", "unique_key", "expected_ms", "traceparent",
	"backoff",
}

// ClockSQL reads the clock of Postgres.
const ClockSQL = `SELECT clock_timestamp()`

// CopySetup is the statement that precedes a COPY of jobs. It reads the clock, because COPY cannot use the default of a
// column for some rows only, and what the table has before unique keys of the role; see [Own]. It refuses no role, because
// there may be no unique key. The table checks their owner.
const CopySetup = ClockSQL + `, coalesce(dispatcherd.owner(jobs => NULL) || ' / ', '')`

// Own makes the unique key in a row of [Columns] one of its owner.
func Own(row []any, owner string) {
	if key, given := row[8].(string); given {
		row[8] = owner + key
	}
}

// InsertSQL returns the statement that inserts a row. runAt is the expression of run_at, with $6.
func InsertSQL(runAt string) string {
	return "INSERT INTO dispatcherd.jobs (" + strings.Join(Columns, ", ") + ") VALUES ($1, $2::text::jsonb, $3, $4, $5, " + runAt +
		", $7, $8, CASE WHEN $9::text IS NOT NULL THEN coalesce(dispatcherd.owner() || ' / ', '') || $9 END, $10, $11, $12) RETURNING id"
}

// maxUniqueKey is the length of the longest unique key in bytes.
const maxUniqueKey = 512

// CheckUniqueKey returns an error for a unique key that is too long, or that would name an owner; "" = none.
func CheckUniqueKey(key string) error {
	switch {
	case len(key) > maxUniqueKey:
		return fmt.Errorf("unique_key has %d bytes, must have 1 to %d, or be left out", len(key), maxUniqueKey)
	case strings.Contains(key, " / "):
		return fmt.Errorf("unique_key %q contains %q, which follows its owner in the table: use another separator", key, " / ")
	}
	return nil
}

// Names of constraints that depend on other rows.
const (
	UniqueKeyIndex = "jobs_live_unique_key" // another job has the unique key
	OpenBatchRule  = "batch_is_open"        // the parent is sealed or cancelled
	// OwnerRule is violated if the setting dispatcherd.owner does not name the role or a group of it.
	OwnerRule = "owner_is_the_role_or_its_group"
)

// CorrectOwner says what to do if the role of a program violates [OwnerRule].
const CorrectOwner = "correct the setting dispatcherd.owner of the role, of the database or of --database-url, " +
	"or remove it ('ALTER DATABASE … RESET dispatcherd.owner;')"

// rules describe the constraints on the columns that producers write, by name.
var rules = map[string]string{
	"backoff_is_exponential_fixed_or_list": "backoff must be exponential:BASE[,FACTOR[,MAX[,JITTER]]], fixed:DELAY or list:DELAY[,DELAY…]",
	"expected_ms_is_1_to_2147483647":       "expected_ms must be at least 1, or left out",
	// The function permits.Parse names the word.
	"keys_are_1_to_4_words":      "keys must be 1 to 4 words KEY, KEY*COST or KEY*all, for example 'tenant:42 stripe*3'",
	"max_attempts_is_at_least_1": "max_attempts must be at least 1",
	// The other limits: jsontext.CheckPayload.
	"payload_is_at_most_1_megabyte_and_8_as_text": "the payload has more than 1,000,000 bytes as Postgres stores it: store " +
		"large data outside the job and refer to it",
	"priority_is_0_to_10":              "priority must be 0 to 10",
	"run_at_is_between_1970_and_2200":  "run_at must be a time in the years 1970 to 2199",
	"traceparent_is_w3c_trace_context": "traceparent must be 00-TRACE-PARENT-FLAGS with 32, 16 and 2 hexadecimal digits in lower case",
	"timeout_ms_is_positive":           "timeout_ms must be at least 1, or left out for the limit of the type",
	UniqueKeyIndex:                     "another pending or running job has this unique_key",
	"run_when_is_done_ended_or_failed": "run_when must be done, ended or failed", // of a batch, like the next one
	"name_is_1_to_128_bytes":           "name must have 1 to 128 bytes",
	"unique_key_is_1_to_512_bytes":     "unique_key must have 1 to 512 bytes",
	"unique_key_has_at_most_one_owner": "unique_key must not contain \" / \", which follows its owner",
	"type_has_no_control_character":    "type must not contain control characters",
	"type_has_no_invisible_character":  "type must not contain invisible characters (control, format and separator characters)",
	"type_is_1_to_128_bytes":           "type must have 1 to 128 bytes",
}

// Rule describes a constraint of the table for users, "" if it is not one of the rules for
// producers. detail is that of Postgres, which names a unique key.
func Rule(constraint, detail string) string {
	if constraint == UniqueKeyIndex && detail != "" {
		return rules[constraint] + ": " + detail
	}
	return rules[constraint]
}
