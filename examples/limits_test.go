package examples

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// No deposit is lost, although eight slots are free, and no second has more than five starts.
func TestLimitsKeepAccountsAndTheRate(t *testing.T) {
	require.Regexp(t, `account 0: 4\naccount 1: 4\naccount 2: 4\nstarts within a second: [1-5]\n`, runExample(t, "limits/run.sh"))
}
