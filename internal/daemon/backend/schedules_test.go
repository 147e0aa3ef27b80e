package backend

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

func TestErrorsOfTablesHaveAKindOfProblem(t *testing.T) {
	for kind, errs := range map[rest.Kind][]error{
		rest.NotFound:       {schedulestore.ErrNotFound, limitstore.ErrNotFound, joins.ErrNotFound},
		rest.InvalidRequest: {schedulestore.ErrInvalid, limitstore.ErrInvalid, joins.ErrInvalid},
		rest.Conflict: {
			schedulestore.ErrEdited, schedulestore.ErrFull, limitstore.ErrEdited, limitstore.ErrTooMany, joins.ErrConflict,
		},
	} {
		for _, want := range errs {
			err := refusal(fmt.Errorf("row %q: %w", "s", want))
			found, ok := errors.AsType[*rest.RefusalError](err)
			require.True(t, ok, want)
			require.Equal(t, kind, found.Kind, want)
			require.Contains(t, err.Error(), want.Error())
		}
	}
	var p *rest.Problem
	require.ErrorAs(t, refusal(&pgconn.PgError{Code: "22021", Message: "invalid byte sequence"}), &p)
	require.Equal(t, rest.InvalidRequest.Name, p.Name())
}
