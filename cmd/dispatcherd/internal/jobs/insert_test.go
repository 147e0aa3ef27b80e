package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestNumberOfNamedBadLinesIsBounded(t *testing.T) {
	a, out, errs := on(pgtest.New(t), strings.Repeat("{}\n", 1000)+`{"type":"pdf"}`)
	require.NoError(t, a.insertStream(t.Context(), nil, "-", true))
	require.Equal(t, "1 job inserted\n", out.String())
	require.Equal(t, maxComplaints+1, strings.Count(errs.String(), "\n"))
	require.Contains(t, errs.String(), "1000 bad lines skipped")

	a, out, errs = on(pgtest.New(t), `{"type":"pdf"}`+"\n"+strings.Repeat("{}\n", 1000))
	require.ErrorContains(t, a.insertStream(t.Context(), nil, "-", false), "at least 100 bad lines; nothing was inserted")
	require.Empty(t, out.String())
	require.Equal(t, maxComplaints, strings.Count(errs.String(), "\n"))
	require.Contains(t, errs.String(), "line 101: ")
}

func TestRunAtAcceptsATimeOrADuration(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at, err := parseWhen("90s", now)
	require.NoError(t, err)
	require.Equal(t, now.Add(90*time.Second), at)
	_, err = parseWhen("-90s", now)
	require.Error(t, err)
}

func TestPayloadThatIsNotJSONNamesThePosition(t *testing.T) {
	for text, position := range map[string]string{
		"":                  "line 1, column 1: unexpected end",
		"hello":             "line 1, column 1: invalid character 'h' looking for beginning of value",
		"{\n  \"é\": 1,\n}": "line 3, column 1: invalid character '}' looking for beginning of object key string",
		"{\"é\": 1 2}":      "line 1, column 9: invalid character '2' after object key:value pair",
		"[1,\n2":            "line 2, column 2: unexpected end",
		"1 2":               "line 1, column 3: invalid character '2' after top-level value",
	} {
		_, err := checkedJSON([]byte(text))
		require.ErrorContains(t, err, "the payload is not JSON: "+position, text)
	}
}
