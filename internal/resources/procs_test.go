package resources

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

func TestADaemonThatHasLittleToDoAgainTriesOneProcessorAfterASecond(t *testing.T) {
	var g gear
	require.False(t, driven(&g, 1, 0), "the first look has nothing to compare with")
	require.False(t, driven(&g, looksOfCalm-1, gearDown-1))
	require.True(t, driven(&g, 1, gearDown-1))
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

// A load that needs 80 % of one processor, and of two, because of the threads that
// look for work, no more than 95.
func TestTriesThatFailBecomeRarer(t *testing.T) {
	g := gear{seen: true}
	for fails := range gearRare + 2 {
		calm := looksOfCalm << min(fails, gearRare)
		require.False(t, driven(&g, calm-1, 95), fails)
		require.True(t, driven(&g, 1, 95), fails)
		require.False(t, driven(&g, 1, 80), fails)
	}
	require.True(t, driven(&g, looksOfCalm<<gearRare, 0))
	require.True(t, driven(&g, looksOfCalm, gearUp), "this one succeeds")
	require.False(t, driven(&g, 1, 80))
	require.True(t, driven(&g, looksOfCalm, 95), "so the next one comes soon")
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
