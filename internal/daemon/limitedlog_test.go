package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestLimitedLogStatesHowManyLinesItSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		log := newLimitedLog(zap.New(core), 2, "connected")
		for range 5 { // in one second
			log.write(zap.InfoLevel, zap.Int("uid", 7))
		}
		require.Equal(t, 2, lines.Len())
		time.Sleep(2 * time.Second)
		log.write(zap.InfoLevel, zap.Int("uid", 7))
		require.Equal(t, 3, lines.Len())
		require.EqualValues(t, 0, lines.All()[0].ContextMap()["not_logged_since"])
		require.EqualValues(t, 3, lines.All()[2].ContextMap()["not_logged_since"])
	})
}
