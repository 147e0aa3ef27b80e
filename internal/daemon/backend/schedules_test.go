package backend

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

func TestErrorsOfSchedulesAreProblems(t *testing.T) {
	for kind, errs := range map[string][]error{
		"not-found":       {schedulestore.ErrNotFound},
		"invalid-request": {schedulestore.ErrInvalid},
		"conflict": {
			schedulestore.ErrEdited, schedulestore.ErrFull,
			&schedulestore.RefusedError{Outcome: "locked", Err: errors.New("locked")},
		},
	} {
		for _, want := range errs {
			_, err := withinSchedules(t.Context(), func(context.Context) (int, error) { return 0, fmt.Errorf("schedule %q: %w", "s", want) })
			p, ok := errors.AsType[*problem.Problem](err)
			require.True(t, ok, want)
			require.Equal(t, kind, p.Name(), want)
			require.Contains(t, p.Detail, want.Error())
		}
	}
}
