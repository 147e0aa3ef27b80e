package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// A caller of the API gets 503 and may retry.
func TestALostConnectionIsUnavailable(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("insert: %w", io.ErrUnexpectedEOF), fmt.Errorf("receive: %w", io.EOF), &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		&pgconn.PgError{Code: "57P01"}, context.DeadlineExceeded,
	} {
		require.ErrorIs(t, classify(err), ondemand.ErrUnavailable)
	}
	require.NotErrorIs(t, classify(errors.New("a bug")), ondemand.ErrUnavailable)
}
