package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
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
	} {
		workers, api := DefaultConfig().Workers, DefaultConfig().API
		if c.listeners == 2 {
			api.Listen = "127.0.0.1:8088"
		}
		needed, err := fitDescriptors(c.files, &workers, &api)
		require.NoError(t, err)
		require.Equal(t, 16544+c.listeners*10_000, needed)
		require.Equal(t, []int{c.workers, c.callers}, []int{workers.MaxConnections, api.MaxConnections}, c)
		require.LessOrEqual(t, workers.MaxConnections+c.listeners*api.MaxConnections+keptDescriptors, c.files)
	}
	workers, api := DefaultConfig().Workers, DefaultConfig().API
	_, err := fitDescriptors(223, &workers, &api)
	require.Equal(t, exit.Usage, exit.CodeOf(t.Context(), err))
	require.ErrorContains(t, err, "this process may open 223 files, and the dispatcher needs 224 at least: raise the limit")
}
