package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnectionsLeaveDescriptorsForPostgres(t *testing.T) {
	for _, c := range []struct {
		files, listeners, workers, callers int // the last two are the bounds that are expected
	}{
		{1 << 20, 1, 16384, 10_000},
		{26544, 1, 16384, 10_000},
		{26543, 1, 16383, 10_000},
		{36543, 2, 16383, 10_000},
		{1024, 1, 536, 328},
		{1024, 2, 389, 237},
		{224, 1, 39, 25},
		{224, 2, 28, 18},
		{100, 1, 39, 25},
	} {
		workers, api := DefaultConfig().Workers, DefaultConfig().API
		if c.listeners == 2 {
			api.Listen = "127.0.0.1:8088"
		}
		require.Equal(t, 16544+c.listeners*10_000, fitDescriptors(c.files, &workers, &api))
		require.Equal(t, []int{c.workers, c.callers}, []int{workers.MaxConnections, api.MaxConnections}, c)
		require.LessOrEqual(t, workers.MaxConnections+c.listeners*api.MaxConnections+keptDescriptors, max(c.files, 224))
	}
}
