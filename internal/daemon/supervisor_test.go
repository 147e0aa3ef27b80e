package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEnvironmentOfAnotherProcessIsIgnored(t *testing.T) {
	env := func(values map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	}
	sockets, err := InheritedSockets(env(map[string]string{"LISTEN_PID": "1", "LISTEN_FDS": "2"}))
	require.NoError(t, err)
	require.Empty(t, sockets)
	require.Equal(t, Supervisor{socket: "/n"},
		SupervisorOf(env(map[string]string{"NOTIFY_SOCKET": "/n", "WATCHDOG_PID": "1", "WATCHDOG_USEC": "9"})))
	require.Equal(t, Supervisor{socket: "/n", every: time.Second},
		SupervisorOf(env(map[string]string{"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000"})))
	require.Zero(t, SupervisorOf(env(map[string]string{"WATCHDOG_USEC": "soon"})))
	require.NoError(t, Supervisor{}.notify("READY=1"))
	require.Error(t, Supervisor{socket: "/does/not/exist"}.notify("READY=1"))
}
