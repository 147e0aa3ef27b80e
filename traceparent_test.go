package dispatcherd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTraceContextHasTheFormOfTheRecommendation(t *testing.T) {
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	require.NoError(t, CheckTraceparent(valid))
	for _, bad := range []string{
		"", valid + "-", valid[:54], strings.ToUpper(valid), "01" + valid[2:], "ff" + valid[2:], " " + valid, valid + "\n",
		"00-" + strings.Repeat("0", 32) + valid[35:], valid[:36] + strings.Repeat("0", 16) + "-01", strings.ReplaceAll(valid, "-", "_"),
	} {
		require.ErrorContains(t, CheckTraceparent(bad), "must be 00-TRACE-PARENT-FLAGS", bad)
	}
	require.Less(t, len(CheckTraceparent(strings.Repeat("x", 1000)).Error()), 220, "a long value is cut")
}
