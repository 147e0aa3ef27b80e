package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeartbeatFollowsTheFirstSlotOfATypeAtOnce(t *testing.T) {
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
