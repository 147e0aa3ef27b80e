package schedule

import (
	"encoding/json"
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
			require.ErrorContains(t, Assign(&s, c.name, json.RawMessage(`[1]`)), "must have the form of "+c.example)
		}
	}
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
