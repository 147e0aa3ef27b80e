package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestRunAtAcceptsATimeOrADuration(t *testing.T) {
	member, value, err := parseWhen("90s")
	require.NoError(t, err)
	require.Equal(t, "run_in", member, "the clock of Postgres counts, not that of this host")
	require.Equal(t, contract.Duration(90*time.Second), value)
	member, value, err = parseWhen("2026-01-02T03:04:05Z")
	require.NoError(t, err)
	require.Equal(t, "run_at", member)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), value)
	_, _, err = parseWhen("-90s")
	require.Error(t, err)
}

func TestPayloadThatIsNotJSONNamesThePosition(t *testing.T) {
	for text, position := range map[string]string{
		"":                  "line 1: unexpected end",
		"hello":             "line 1: invalid character 'h' looking for beginning of value",
		"{\n  \"é\": 1,\n}": "line 3: invalid character '}' looking for beginning of object key string",
		"{\"é\": 1 2}":      "line 1: invalid character '2' after object key:value pair",
		"[1,\n2":            "line 2: unexpected end",
		"1 2":               "line 1: invalid character '2' after top-level value",
	} {
		_, err := checkedJSON([]byte(text))
		require.ErrorContains(t, err, "the payload is not JSON: "+position, text)
	}
}

func TestTimeoutOfADayIsInserted(t *testing.T) {
	flags := (&Invocation{}).jobInsertCommand().Flags()
	require.NoError(t, flags.Parse([]string{"--timeout", "24h", "--expected", "1d12h"}))
	for name, want := range map[string]time.Duration{"timeout": 24 * time.Hour, "expected": 36 * time.Hour} {
		member, value, err := (&Invocation{}).memberOf(name, flags.Lookup(name).Value.String())
		require.NoError(t, err)
		require.Equal(t, name+"_ms", member)
		require.Equal(t, want.Milliseconds(), value)
	}
}
