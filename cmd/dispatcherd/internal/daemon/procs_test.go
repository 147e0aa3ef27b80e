package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// driven looks n times and returns what the last look said. Percent is of one
// processor.
func driven(g *gear, n, percent int) (one bool) {
	for range n {
		one = g.look(g.at+gearLook, g.used+time.Duration(percent)*gearLook/100)
	}
	return one
}

const looksOfCalm = int(gearCalm / gearLook)

func TestADaemonWithLittleToDoRunsOnOneProcessorAfterASecond(t *testing.T) {
	var g gear
	require.False(t, driven(&g, 1, 0), "it begins with all of them")
	require.False(t, driven(&g, looksOfCalm-1, 10))
	require.True(t, driven(&g, 1, 10))
}

func TestOneLookAtLoadBringsAllProcessorsBack(t *testing.T) {
	g := gear{one: true, seen: true}
	require.True(t, driven(&g, 50, gearUp), "as much as one processor can do well")
	require.False(t, driven(&g, 1, gearUp+1))
	require.False(t, driven(&g, looksOfCalm-1, 0), "and for a second at least")
	require.True(t, driven(&g, 1, 0))
}

func TestABurstBeginsTheSecondOfCalmAnew(t *testing.T) {
	g := gear{seen: true}
	require.False(t, driven(&g, looksOfCalm-1, 0))
	require.False(t, driven(&g, 1, gearDown))
	require.False(t, driven(&g, looksOfCalm-1, 0))
	require.True(t, driven(&g, 1, 0))
}

func TestBetweenTheTwoThresholdsNothingChanges(t *testing.T) {
	for _, one := range []bool{true, false} {
		g := gear{one: one, seen: true}
		require.Equal(t, one, driven(&g, 100, (gearUp+gearDown)/2))
	}
}

func TestProcsTakesAutoOrANumber(t *testing.T) {
	var p Procs
	for _, good := range []string{"auto", "1", "16"} {
		require.NoError(t, p.Set(good))
		require.Equal(t, good, p.String())
	}
	for _, bad := range []string{"", "0", "-1", "all", "1.5", "5000"} {
		require.Error(t, p.Set(bad), bad)
	}
}

func TestProcessorTimeGrows(t *testing.T) {
	before, err := processorTime()
	require.NoError(t, err)
	for {
		after, err := processorTime()
		require.NoError(t, err)
		if after > before {
			return
		}
	}
}
