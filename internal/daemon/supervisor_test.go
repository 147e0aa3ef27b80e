package daemon

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestSocketsOfAnotherProcessAreIgnored(t *testing.T) {
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "2")
	sockets, err := InheritedSockets()
	require.NoError(t, err)
	require.Empty(t, sockets)
}

func TestFailedNotificationOfTheSupervisorIsLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	d := &Daemon{log: zap.New(core)}
	d.notifySupervisor("READY=1")
	require.Zero(t, logs.Len(), "there is no supervisor")
	require.Nil(t, d.watchdog().Step)
	d.cfg.Supervisor = Supervisor{Notify: func(string) (bool, error) { return false, errors.New("gone") }, Watchdog: time.Second}
	d.notifySupervisor("READY=1")
	require.Equal(t, 1, logs.Len())
	require.NotNil(t, d.watchdog().Step)
}
