package exit

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

func TestUnusableDirectoryIsAWrongSetting(t *testing.T) {
	require.Equal(t, Usage, CodeOf(t.Context(), &devpg.DirError{}))
}

// A driver that fails twice for the same reason reports the reason twice.
func TestRepeatedLineIsRemoved(t *testing.T) {
	require.Equal(t, "tried: a", Once("tried:\n\ta\n\ta"))
	require.Equal(t, "tried:\n\ta\n\tb", Once("tried:\n\ta\n\tb\n\ta"), "different lines remain")
}

func TestSearchThatTookTooLongMeansThatPostgresDoesNotAnswer(t *testing.T) {
	require.Equal(t, Unavailable, CodeOf(t.Context(), fmt.Errorf("listing jobs: %w", claim.ErrSearchTime)))
}

func TestErrorsOfSchedulesHaveTheirCodes(t *testing.T) {
	for err, code := range map[error]int{
		schedulestore.ErrInvalid: Usage, schedulestore.ErrNotFound: NotFound, schedulestore.ErrEdited: Conflict,
		schedulestore.ErrFull: Conflict, &schedulestore.RefusedError{Err: errors.New("paused")}: Conflict,
	} {
		require.Equal(t, code, CodeOf(t.Context(), fmt.Errorf("schedule %q: %w", "s", err)), err)
	}
}
