package contract

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxTimeout is the longest timeout of an attempt that a row can hold.
const MaxTimeout = math.MaxInt32 * time.Millisecond

// AttemptsColumn returns the value of the column max_attempts.
func AttemptsColumn(n int) (int16, error) {
	if n < 1 || n > math.MaxInt16 {
		return 0, fmt.Errorf("max_attempts is %d, must be 1 to %d, or left out for the default", n, math.MaxInt16)
	}
	return int16(n), nil
}

// TimeoutColumn returns the value of the column timeout_ms: milliseconds, rounded
// up.
func TimeoutColumn(d time.Duration) (int32, error) {
	if d <= 0 || d > MaxTimeout {
		return 0, fmt.Errorf("its timeout is %v, must be more than 0 and at most %v, or left out for the limit of its type", d, MaxTimeout)
	}
	return int32((d-1)/time.Millisecond + 1), nil
}

// InsertSetup is the statement that precedes a COPY of jobs. It reads the clock, because COPY cannot use the
// default of a column for some rows only, and whether the session may insert keys: the schema or its rights may be those of a former version.
const InsertSetup = `SELECT clock_timestamp(), EXISTS (SELECT FROM pg_attribute
	WHERE attrelid = 'dispatcherd.jobs'::regclass AND attname = 'keys' AND has_column_privilege(attrelid, attnum, 'INSERT'))`

// ErrNoKeys says that the session may not insert jobs with keys.
var ErrNoKeys = errors.New("keys: the database takes no jobs with keys from this role: run 'dispatcherd migrate up', or grant the role dispatcherd_producer")

// rules describe the constraints on the columns that producers write, by name.
var rules = map[string]string{
	"keys_are_1_to_4_words":                       "keys must be 1 to 4 words KEY, KEY*COST or KEY*all, for example 'tenant:42 stripe*3'", // permits.Parse names the word
	"max_attempts_is_at_least_1":                  "max_attempts must be at least 1",
	"payload_is_at_most_1_megabyte_and_8_as_text": "the payload has more than 1,000,000 bytes as Postgres stores it: store large data outside the job and refer to it", // the other limits: jsontext.CheckPayload
	"priority_is_0_to_10":                         "priority must be 0 to 10",
	"run_at_is_between_1970_and_2200":             "run_at must be a time in the years 1970 to 2199",
	"timeout_ms_is_positive":                      "timeout_ms must be at least 1, or left out for the limit of the type",
	"type_has_no_control_character":               "type must not contain control characters",
	"type_has_no_invisible_character":             "type must not contain invisible characters (control, format and separator characters)",
	"type_is_1_to_128_bytes":                      "type must have 1 to 128 bytes",
}

// Rule describes a constraint of the table for users, "" if it is not one of the rules for
// producers.
func Rule(constraint string) string { return rules[constraint] }
