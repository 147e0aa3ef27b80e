package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestOutcomeIsNamedOnce(t *testing.T) {
	require.Equal(t, "retry: the sheet is locked", (&badEnd{Outcome: "retry", Error: "the sheet is locked"}).text())
	require.Equal(t, "quarantined: 3 workers died", (&badEnd{Outcome: "quarantined", Error: "quarantined: 3 workers died"}).text())
}

func TestJobWithUnreadableErrorsIsPrinted(t *testing.T) {
	require.Empty(t, badEnds(&contract.Job{Errors: []byte(`{"old": "form"}`)}))
	require.Equal(t, "äö…", shorten("äöüß", 3))
	require.Equal(t, "äöü", shorten("äöü", 3))
}
