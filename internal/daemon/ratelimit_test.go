package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestRateLimitedLogCountsSkippedLines(t *testing.T) {
	core, lines := observer.New(zap.DebugLevel)
	s := &rateLimitedLog{log: zap.New(core), every: time.Hour}
	for range 5 {
		s.warn("again")
	}
	require.Equal(t, 1, lines.Len())
	s.next = time.Time{} // the interval is over
	s.warn("again")
	require.Equal(t, 2, lines.Len())
	require.EqualValues(t, 4, lines.All()[1].ContextMap()["not_logged_since"])
}
