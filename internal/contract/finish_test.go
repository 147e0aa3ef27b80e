package contract

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSecondsAreWrittenWithAtMostThreeDecimals(t *testing.T) {
	long := 0
	for ms := range 100_000 {
		d := time.Duration(ms)*time.Millisecond + 499*time.Microsecond
		text, err := json.Marshal(Seconds(d))
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), len("99.999"), "%v", d)
		if len(fmt.Sprint((time.Duration(ms) * time.Millisecond).Seconds())) > len("99.999") {
			long++
		}
	}
	require.Positive(t, long, "otherwise Duration.Seconds would do")
	require.InDelta(t, 0.002, Seconds(1500*time.Microsecond), 0, "it is rounded")
}
