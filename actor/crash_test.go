package actor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two jobs each crash their worker after one minute. They are retried after
// different delays, but later run at the same time again. In the end both are
// quarantined.
func TestJobsThatCrashTogetherAreQuarantinedInTheEnd(t *testing.T) {
	w := newWorld(t)
	w.command("insert", []string{"a type=pdf tries=25", "b type=pdf tries=25"})
	var out strings.Builder
	for death := 1; death <= 40 && strings.Count(out.String(), "quarantined:") < 2; death++ {
		worker := fmt.Sprintf("w%d", death)
		w.command("register worker="+worker+" types=(pdf) slots=2", nil)
		out.WriteString(w.command("advance 700s", nil))
		out.WriteString(w.command("kill "+worker, nil))
	}
	require.Equal(t, 2, strings.Count(out.String(), "quarantined:"), "%s", out.String())
}
