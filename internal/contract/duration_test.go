package contract

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A duration may begin with days, which Go does not know.
func TestDurationsMayHaveDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute,
	} {
		d, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "d", "1.5d", "-1d", "1day", "1h2d", "1d2", "70000d"} {
		_, err := ParseDuration(text)
		require.Error(t, err, text)
	}
}
