package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The regular heartbeats are half an hour apart, so all but the first are early ones. The worker that has connected second waits
// for the next regular one.
func TestHeartbeatFollowsTheFirstSlotOfATypeOnceBetweenRegularOnes(t *testing.T) {
	db := database(t)
	d, _ := running(t, db, func(c *Config) { c.Lease, c.Heartbeat = 12*time.Hour, time.Hour/2 })
	connect := func(typ string) {
		at := workerproto.SocketAddress(d.cfg.WorkerSocket)
		conn, err := workerproto.DialAt(t.Context(), at, &workerproto.Credentials{}, &workerproto.Hello{
			MinVersion: 1, MaxVersion: 1, Worker: typ, Slots: []workerproto.Slot{{Types: []string{typ}}},
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() }) // the daemon may have closed it
	}
	published := func(beats int, types string) {
		t.Helper()
		require.Eventually(t, func() (is bool) {
			require.NoError(t, db.QueryRow(t.Context(),
				`SELECT beats = $1 AND capacity = $2::jsonb FROM dispatcherd.dispatchers`, beats, types).Scan(&is))
			return is
		}, 20*time.Second, time.Millisecond)
	}
	published(1, `{}`)
	connect("pdf")
	published(2, `{"pdf": 1}`)
	connect("mail")
	require.Eventually(t, func() bool { return len(d.heartbeats.connected) == 1 }, 20*time.Second, time.Millisecond)
	tell(d.heartbeats.adopted)
	published(3, `{"pdf": 1, "mail": 1}`)
	require.Len(t, d.heartbeats.connected, 1, "the loop has not looked at it")
}

func TestOnlyATypeWithoutSlotsHasAFirstSlot(t *testing.T) {
	h := heartbeats{published: map[string]int{"pdf": 2, "mail": 0}}
	require.False(t, h.supportsMore(map[string]int{"pdf": 3, "mail": 0}), "more slots of a type")
	require.True(t, h.supportsMore(map[string]int{"pdf": 2, "mail": 1}))
	require.True(t, h.supportsMore(map[string]int{"excel": 1}))
	require.False(t, h.supportsMore(nil), "a slot has gone")
	news := make(chan struct{}, 1)
	for range 2 {
		tell(news)
	}
	require.Len(t, news, 1)
}
