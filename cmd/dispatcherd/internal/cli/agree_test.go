package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func TestOnlyYesConfirmsAChange(t *testing.T) {
	for answer, agrees := range map[string]bool{
		"y\n": true, "Yes\n": true, "y": true, "": false, "\n": false, "n\n": false, "yesterday\n": false,
	} {
		var out, errs bytes.Buffer
		a := Invocation{Console: Console{In: strings.NewReader(answer), Out: &out, Err: &errs}}
		require.Equal(t, agrees, a.confirm(t.Context(), "This will cancel 2 jobs.") == nil, "%q", answer)
		require.Equal(t, "This will cancel 2 jobs. Continue? [y/N] ", errs.String())
		require.Empty(t, out.String())
	}
}

func TestInterruptEndsTheWaitForConsentAtOnce(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	in, keyboard := io.Pipe() // on which nothing is typed
	defer func() { _ = keyboard.Close() }()
	interrupt()
	a := Invocation{Console: Console{In: in, Err: io.Discard}}
	err := a.confirm(ctx, "This will cancel 2 jobs.")
	require.ErrorContains(t, err, "nothing was changed")
	require.Equal(t, exit.Interrupted, exit.CodeOf(ctx, err))
}
