package brief_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/brief"
)

func yes() bool { return true }

// alone keeps Go to one processor, as a program must for a lookout to look.
func alone(t *testing.T) {
	t.Helper()
	if runtime.NumCPU() == 1 {
		t.Skip("nobody looks where there is one processor only")
	}
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestALookoutFindsWhatComes(t *testing.T) {
	alone(t)
	near, far := pair(t)
	l := brief.NewLookout(near, time.Minute, yes)
	for range 3 {
		go func() { _, _ = far.Write([]byte("x")) }()
		found, took := l.Look()
		require.True(t, found)
		require.Positive(t, took)
		require.Less(t, took, time.Minute)
		n, err := near.Read(make([]byte, 2))
		require.NoError(t, err)
		require.Equal(t, 1, n, "it takes nothing away")
	}
	short := brief.NewLookout(near, time.Microsecond, yes)
	found, took := short.Look()
	require.Positive(t, took)
	require.False(t, found, "what was read already, though it may be left in the kernel")
}

func TestALookoutInVainLooksLessAndLessOften(t *testing.T) {
	alone(t)
	near, far := pair(t)
	l := brief.NewLookout(near, time.Microsecond, yes)
	var gaps []int
	for gap := 0; len(gaps) < 11; gap++ {
		if found, took := l.Look(); took > 0 {
			require.False(t, found)
			require.GreaterOrEqual(t, took, time.Microsecond)
			gaps, gap = append(gaps, gap), -1
		}
	}
	require.Equal(t, []int{0, 1, 3, 7, 15, 31, 63, 127, 255, 255, 255}, gaps)
	_, err := far.Write([]byte("x"))
	require.NoError(t, err)
	for found := false; !found; {
		found, _ = l.Look()
	}
	found, _ := l.Look()
	require.True(t, found, "found once, it looks every time again")
}

func TestALookoutOnAClosedConnectionReturns(t *testing.T) {
	alone(t)
	near, _ := pair(t)
	l := brief.NewLookout(near, time.Minute, yes)
	require.NoError(t, near.Close())
	found, took := l.Look()
	require.False(t, found)
	require.Less(t, took, time.Minute)
}

func TestNobodyLooksWithoutTimeForItOrWithProcessorsToSpare(t *testing.T) {
	near, far := pair(t)
	require.Nil(t, brief.NewLookout(near, 0, yes))
	require.Nil(t, brief.NewLookout(near, time.Second, nil), "nobody can say that there is nothing else to do")
	require.Nil(t, brief.NewLookout(far, time.Second, yes), "not one of the package's")
	var none *brief.Lookout
	_, took := none.Look()
	require.Zero(t, took)
	before := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	_, took = brief.NewLookout(near, time.Minute, yes).Look()
	require.Zero(t, took)
}

func TestALookoutEndsWhenThereIsSomethingElseToDo(t *testing.T) {
	alone(t)
	near, _ := pair(t)
	left := 0
	l := brief.NewLookout(near, time.Minute, func() bool { left--; return left >= 0 })
	_, took := l.Look()
	require.Zero(t, took, "it did not even begin")
	for range 3 { // none is left out: that was not in vain
		left = 2
		found, took := l.Look()
		require.False(t, found)
		require.Positive(t, took)
		require.Less(t, took, time.Minute)
		require.Equal(t, -1, left, "asked before each look")
	}
}
