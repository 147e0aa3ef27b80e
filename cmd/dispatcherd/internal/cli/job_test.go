package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestOutcomeIsNamedOnce(t *testing.T) {
	require.Equal(t, "retry: the sheet is locked", (&contract.BadEnd{Outcome: "retry", Error: "the sheet is locked"}).String())
	require.Equal(t, "quarantined: 3 workers died", (&contract.BadEnd{Outcome: "quarantined", Error: "quarantined: 3 workers died"}).String())
}

func TestJobWithUnreadableErrorsIsPrinted(t *testing.T) {
	require.Empty(t, (&contract.Job{Errors: []byte(`{"old": "form"}`)}).BadEnds())
	require.Equal(t, "äö…", shorten("äöüß", 3))
	require.Equal(t, "äöü", shorten("äöü", 3))
}
