package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// hungUp reports whether Postgres closed the connection without an error message,
// before or during the statement.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}

const (
	lockNotAvailable = "55P03" // the lock timeout of the session has passed; see claim.Pin
	noConversion     = "0A000" // the database has the encoding SQL_ASCII, and the value has an escaped character
)

// classify translates errors of claim and pgx to errors of httpapi and ondemand.
func classify(err error) error {
	var status *claim.StatusError
	var noCallback *claim.NoCallbackError
	var byRule *joins.RefusedError
	refused := dsn.ErrorOf(err)
	switch {
	case exit.WrongOwner(err), errors.As(err, &byRule) && byRule.Rule == contract.OwnerRule: // the setting was changed after the start
		return rest.Internal.Of("the role of the daemon has no owner for batches and unique keys: " + contract.CorrectOwner)
	case errors.As(err, &noCallback):
		return rest.NotFound.Of(noCallback.Error())
	case errors.Is(err, claim.ErrNotFound):
		return httpapi.ErrNotFound
	case errors.As(err, &status):
		return rest.Conflict.Of(status.Error())
	case errors.Is(err, claim.ErrSearchTime):
		return rest.Unavailable.Of(err.Error())
	case dsn.ReadOnly(err):
		return fmt.Errorf("%w: %w", rest.Unavailable.Of("Postgres is read-only: "+
			"the server is a standby, or default_transaction_read_only is on; the daemon continues when a server accepts writes: "+
			"promote one or reset the setting").Retryable(), ondemand.ErrUnavailable)
	case refused.Code == lockNotAvailable:
		return fmt.Errorf("%w: %w", rest.Unavailable.Of("the row or its unique key is locked by a transaction "+
			"of another session: end it, or try again later").Retryable(), ondemand.ErrUnavailable)
	case exit.Unreachable(err), hungUp(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", ondemand.ErrUnavailable, err)
	case refused.ConstraintName == contract.UniqueKeyIndex, refused.ConstraintName == contract.OpenBatchRule,
		strings.HasPrefix(refused.Code, "P0"): // a function or trigger of the database raised an exception
		return rest.Conflict.Of(claim.Refusal(refused))
	case strings.HasPrefix(refused.Code, "22"), strings.HasPrefix(refused.Code, "23"), refused.Code == noConversion:
		return rest.InvalidJob.Of(claim.Refusal(refused))
	}
	return err
}
