package schedule

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Each example is a value that its column accepts, and the columns are all that users set.
func TestExamplesOfColumnsAreAccepted(t *testing.T) {
	var s contract.Schedule
	for _, c := range columns {
		before := s
		require.NoError(t, Assign(&s, c.name, json.RawMessage(c.example)), c.name)
		changes := Differences(&before, &s)
		require.Len(t, changes, 1, c.name)
		require.Equal(t, c.name, changes[0].Column)
		require.NoError(t, Assign(&before, c.name, changes[0].New))
		require.Empty(t, Differences(&before, &s))
		if c.name != "payload" {
			require.ErrorContains(t, Assign(&s, c.name, json.RawMessage(`[1]`)), "must be "+c.rule+", for example "+c.example)
		}
	}
}

// An empty text removes what was set.
func TestEmptyTextMeansTheDefault(t *testing.T) {
	fresh := contract.NewSchedule()
	for _, c := range columns {
		s := fresh
		s.MaxAttempts, s.Overlap, s.CatchUp, s.CatchUpMost = 7, contract.AllowAll, 0, 3
		require.NoError(t, AssignText(&s, c.name, strings.Trim(c.example, `"`)), c.name)
		for _, empty := range []string{c.name, "max_attempts", "overlap", "catch_up", "catch_up_most"} {
			require.NoError(t, AssignText(&s, empty, ""), empty)
		}
		require.Empty(t, Differences(&fresh, &s), c.name)
	}
	var s contract.Schedule
	require.ErrorContains(t, AssignText(&s, "color", ""), `column "color": must be one of`)
}

func TestPayloadsAreComparedByValue(t *testing.T) {
	a, b := contract.Schedule{Payload: []byte(`{"a": 1, "b": [2]}`)}, contract.Schedule{Payload: []byte(`{"b":[2],"a":1}`)}
	require.Empty(t, Differences(&a, &b))
	at := time.Date(2030, 1, 31, 1, 0, 0, 0, time.FixedZone("", 3600))
	utc := at.UTC()
	a.StartsAt, b.StartsAt = &at, &utc
	require.Empty(t, Differences(&a, &b))
	b.Payload = []byte(`{"b":[2],"a":9007199254740993}`)
	a.Payload = []byte(`{"b":[2],"a":9007199254740992}`)
	require.Len(t, Differences(&a, &b), 1)
}

// The longest version makes the longest occasion that the table accepts.
func TestVersionOfTheApplicationFitsInAnOccasion(t *testing.T) {
	longest := strings.Repeat("9", 248)
	for _, version := range []string{"", "1.4.2", "v2+build/7:~!", longest} {
		require.NoError(t, CheckAppVersion(version))
	}
	require.Len(t, Start{AppVersion: longest}.occasion('v'), 256)
	for _, version := range []string{longest + "9", "1 2", "1\n", "é", "\x7f"} {
		require.EqualError(t, CheckAppVersion(version),
			"must be at most 248 letters, digits and punctuation characters of ASCII, for example 1.4.2", "%q", version)
	}
}
