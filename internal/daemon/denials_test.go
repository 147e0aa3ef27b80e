package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestDenialLogStatesHowManyLinesItSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		log := newDenialLog(zap.New(core))
		for range 5 { // in one second
			log.warn(workerproto.Peer{UID: 7}, "pdf")
		}
		require.Equal(t, 1, lines.Len())
		time.Sleep(2 * time.Second)
		log.warn(workerproto.Peer{UID: 7}, "pdf")
		require.Equal(t, 2, lines.Len())
		require.EqualValues(t, 0, lines.All()[0].ContextMap()["not_logged_since"])
		require.EqualValues(t, 4, lines.All()[1].ContextMap()["not_logged_since"])
	})
}
