package examples

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The results of both halves meet, and the handler for failures does not run.
func TestFlowAddsUpTwoHalves(t *testing.T) {
	out := runExample(t, "flow/run.sh")
	require.Regexp(t, `result +\{"id":1,"done":4,"total":5,"failed":0,"cancelled":1\}`, out)
	require.Regexp(t, `members +0 open, 4 done, 0 failed, 1 cancelled`, out)
	require.Regexp(t, `├─╮\s+\n● │ left +\d+ +half +done`, out)
	require.Regexp(t, `– alarm +\d+ +alarm +cancelled`, out)
}
