package claim

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFirstFreeConnectionIsUsed(t *testing.T) {
	list, err := newConnections(Config{DSN: "postgres://localhost/x"}.withDefaults(), 3, "claim", nil)
	require.NoError(t, err)
	take := func() *connection {
		l, err := list.take(t.Context())
		require.NoError(t, err)
		return l
	}
	for i := range list {
		require.Same(t, list[i], take())
	}
	list[1].turn <- struct{}{}
	require.Same(t, list[1], take())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = list.take(ctx)
	require.ErrorIs(t, err, context.Canceled, "all are in use")
	list[0].turn <- struct{}{}
	require.Same(t, list[0], take())
}
