package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyYesConfirmsAChange(t *testing.T) {
	for answer, agrees := range map[string]bool{
		"y\n": true, "Yes\n": true, "y": true, "": false, "\n": false, "n\n": false, "yesterday\n": false,
	} {
		var out, errs bytes.Buffer
		a := Invocation{Console: Console{In: strings.NewReader(answer), Out: &out, Err: &errs}}
		require.Equal(t, agrees, a.confirm("This will cancel 2 jobs."), "%q", answer)
		require.Equal(t, "This will cancel 2 jobs. Continue? [y/N] ", errs.String())
		require.Empty(t, out.String())
	}
}
