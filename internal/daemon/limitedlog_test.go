package daemon

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
		require.NotContains(t, lines.All()[0].ContextMap(), "not_logged_since")
		require.EqualValues(t, 3, lines.All()[2].ContextMap()["not_logged_since"])
	})
}

func TestFailuresOfTheAPIAreLoggedOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		m := newAPIMetrics(prometheus.NewRegistry(), zap.New(core))
		for range 5 {
			m.Failed("why", errors.New("the schema is missing"))
		}
		require.Equal(t, 1, lines.FilterMessage("API answered 500").Len())
	})
}
