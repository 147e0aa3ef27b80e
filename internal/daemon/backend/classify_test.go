package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// A caller of the API gets 503 and may retry.
func TestALostConnectionIsUnavailable(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("insert: %w", io.ErrUnexpectedEOF), fmt.Errorf("receive: %w", io.EOF), &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		&pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "25006"}, &pgconn.PgError{Code: "55P03"}, context.DeadlineExceeded,
		&pgconn.PgError{Code: "26000"}, &pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}, // a new connection cures them
	} {
		require.ErrorIs(t, classify(err), ondemand.ErrUnavailable)
	}
	require.NotErrorIs(t, classify(errors.New("a bug")), ondemand.ErrUnavailable)
}

// A caller learns that waiting for an answer of Postgres is not the point.
func TestReadOnlyDatabaseIsNamed(t *testing.T) {
	p := ondemand.Explain(classify(fmt.Errorf("insert: %w", &pgconn.PgError{Code: "25006"})))
	require.Equal(t, http.StatusServiceUnavailable, p.Status)
	require.Contains(t, p.Detail, "read-only")
	require.Contains(t, p.Detail, "promote one or reset the setting")
	require.Positive(t, p.RetryAfter())
}

// A command about several jobs prints all conflicts, so each one names its job.
func TestConflictNamesTheJob(t *testing.T) {
	var p *rest.Problem
	require.ErrorAs(t, classify(fmt.Errorf("cancel: %w", &claim.StatusError{ID: 7, Status: dispatcherd.Done, Want: "only pending jobs"})), &p)
	require.Equal(t, "job 7 is done: only pending jobs", p.Detail)
}

// A trigger of the database refuses a row. The caller learns why; an internal error would write the text, which may quote the row,
// to the log.
func TestExceptionOfATriggerIsAConflict(t *testing.T) {
	var p *rest.Problem
	require.ErrorAs(t, classify(&pgconn.PgError{Code: "P0001", Message: "not today"}), &p)
	require.Equal(t, http.StatusConflict, p.Status)
	require.Equal(t, "Postgres rejects the job: not today", p.Detail)
}

// A database with the encoding SQL_ASCII cannot store "\u20ac". This is no defect of the dispatcher.
func TestValueThatTheEncodingExcludesIsInvalid(t *testing.T) {
	var invalid *rest.Problem
	for _, code := range []string{"0A000", "22P05"} {
		require.ErrorAs(t, classify(&pgconn.PgError{Code: code, Message: "conversion between UTF8 and SQL_ASCII is not supported"}), &invalid)
		require.Equal(t, rest.InvalidJob.Name, invalid.Name())
		require.Contains(t, invalid.Detail, "conversion between UTF8 and SQL_ASCII is not supported")
	}
}

// A caller of the API learns how to narrow a search that took too long, and gets 503.
func TestSearchThatTookTooLongSaysWhatToNarrow(t *testing.T) {
	var p *rest.Problem
	require.ErrorAs(t, classify(fmt.Errorf("listing: %w", claim.ErrSearchTime)), &p)
	require.Equal(t, http.StatusServiceUnavailable, p.Status)
	require.Contains(t, p.Detail, "narrow the search by a status")
}

// Postgres answers at once. The caller learns what it waits for.
func TestLockOfAnotherSessionIsNamed(t *testing.T) {
	p := ondemand.Explain(classify(fmt.Errorf("retry: %w", &pgconn.PgError{Code: "55P03"})))
	require.Equal(t, http.StatusServiceUnavailable, p.Status)
	require.Equal(t, "the row or its unique key is locked by a transaction of another session: end it, or try again later", p.Detail)
	require.Positive(t, p.RetryAfter())
}

// The first calls of a user wait for a lock. The next ones get their places late, so their time ends before their lock timeout.
func TestCallThatGotItsPlaceLateIsToldSo(t *testing.T) {
	end := func(waits time.Duration) error {
		_, err := within(t.Context(), func(ctx context.Context) (int, error) {
			*ctx.Value(waitedKey{}).(*time.Duration) += waits
			return 0, fmt.Errorf("timeout: %w", context.DeadlineExceeded)
		})
		return err
	}
	require.ErrorIs(t, end(2*time.Second), httpapi.ErrTooManyCalls)
	require.ErrorIs(t, end(time.Millisecond), ondemand.ErrUnavailable)
}
