package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func TestChangeRequiresConsentForTheRightNumber(t *testing.T) {
	a := &Invocation{Console: Console{In: strings.NewReader("y\n"), Err: io.Discard}}
	for _, c := range []struct {
		n      int64
		agreed consent
		code   int
	}{
		{2, consent{count: -1}, exit.Negative}, // the input is no terminal
		{2, consent{count: -1, yes: true}, exit.OK},
		{2, consent{count: 2}, exit.OK},
		{2, consent{count: 3}, exit.Conflict},
		{2, consent{count: 3, yes: true}, exit.Conflict},
		{0, consent{count: -1}, exit.OK},
	} {
		err := a.agreeToChange(t.Context(), contract.CancelJobs, c.n, c.agreed)
		if c.code == exit.OK {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, c.code, exit.CodeOf(t.Context(), err), "%+v", c)
		require.ErrorContains(t, err, "nothing was changed")
	}
}
