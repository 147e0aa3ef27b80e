package brief_test

import (
	"io"
	"net"
	"os"
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

// told keeps what a lookout tells of its looks.
type told struct {
	found []bool
	took  []time.Duration
}

func (to *told) add(found bool, took time.Duration) {
	to.found, to.took = append(to.found, found), append(to.took, took)
}

// both runs a test for each kind of connection that can look.
func both(t *testing.T, test func(t *testing.T, near, far net.Conn)) {
	t.Helper()
	alone(t)
	t.Run("Conn", func(t *testing.T) {
		near, far := pair(t)
		test(t, near, far)
	})
	t.Run("Inward", func(t *testing.T) {
		near, far := inwardPair(t)
		test(t, near, far)
	})
}

func TestALookoutFindsWhatComes(t *testing.T) {
	both(t, func(t *testing.T, near, far net.Conn) {
		var to told
		l := brief.NewLookout(near, brief.Habit{Most: time.Minute, Alone: yes, Told: to.add})
		b := make([]byte, 2)
		for i := range 3 {
			require.True(t, l.Due())
			l.Arm()
			go func() { _, _ = far.Write([]byte("x")) }()
			n, err := near.Read(b)
			require.NoError(t, err)
			require.Equal(t, "x", string(b[:n]))
			require.Len(t, to.found, i+1)
			require.True(t, to.found[i])
			require.Less(t, to.took[i], time.Minute)
		}
		_, err := far.Write([]byte("y"))
		require.NoError(t, err)
		n, err := near.Read(b)
		require.NoError(t, err)
		require.Equal(t, "y", string(b[:n]))
		require.Len(t, to.found, 3, "one look is armed for one read")
	})
}

func TestALookoutThatYieldsFindsWhatComes(t *testing.T) {
	both(t, func(t *testing.T, near, far net.Conn) {
		l := brief.NewLookout(near, brief.Habit{Most: time.Minute, Alone: yes, Yields: 2})
		l.Arm()
		go func() { _, _ = far.Write([]byte("x")) }()
		n, err := near.Read(make([]byte, 2))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

// Between looks that find what comes the reader waits now and then, so that others who
// wait for what comes have their turn.
func TestALookoutRestsOfWhatItFinds(t *testing.T) {
	both(t, func(t *testing.T, near, far net.Conn) {
		var to told
		l := brief.NewLookout(near, brief.Habit{Most: time.Minute, Alone: yes, Rest: time.Nanosecond, Told: to.add})
		var looked []int
		for range 6 {
			require.True(t, l.Due())
			l.Arm()
			_, err := far.Write([]byte("x"))
			require.NoError(t, err)
			n, err := near.Read(make([]byte, 2))
			require.NoError(t, err)
			require.Equal(t, 1, n)
			looked = append(looked, len(to.found))
		}
		require.Equal(t, []int{1, 1, 2, 2, 3, 3}, looked)
	})
}

func TestALookoutInVainLooksLessAndLessOften(t *testing.T) {
	both(t, func(t *testing.T, near, far net.Conn) {
		var to told
		l := brief.NewLookout(near, brief.Habit{Most: time.Microsecond, Alone: yes, Told: to.add})
		look := func() { // in vain: the read ends with its deadline
			l.Arm()
			require.NoError(t, near.SetReadDeadline(time.Now()))
			_, err := near.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, near.SetReadDeadline(time.Time{}))
		}
		var gaps []int
		for gap := 0; len(gaps) < 11; gap++ {
			if l.Due() {
				look()
				gaps, gap = append(gaps, gap), -1
			}
		}
		require.Equal(t, []int{0, 1, 3, 7, 15, 31, 63, 127, 255, 255, 255}, gaps)
		require.Len(t, to.found, 11)
		require.NotContains(t, to.found, true)
		_, err := far.Write([]byte("x"))
		require.NoError(t, err)
		for !l.Due() {
		}
		l.Arm()
		_, err = near.Read(make([]byte, 1))
		require.NoError(t, err)
		require.True(t, l.Due(), "found once, it looks every time again")
	})
}

func TestALookoutEndsWithItsConnection(t *testing.T) {
	both(t, func(t *testing.T, near, far net.Conn) {
		l := brief.NewLookout(near, brief.Habit{Most: time.Hour, Alone: yes})
		l.Arm()
		go func() { _ = far.Close() }()
		_, err := near.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, near.Close())
		l.Arm()
		_, err = near.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestNobodyLooksWithoutTimeForItOrWithProcessorsToSpare(t *testing.T) {
	near, far := pair(t)
	require.Nil(t, brief.NewLookout(near, brief.Habit{Alone: yes}))
	require.Nil(t, brief.NewLookout(near, brief.Habit{Most: time.Second}), "nobody can say that there is nothing else to do")
	require.Nil(t, brief.NewLookout(far, brief.Habit{Most: time.Second, Alone: yes}), "not one of the package's")
	var none *brief.Lookout
	require.False(t, none.Due())
	before := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	require.False(t, brief.NewLookout(near, brief.Habit{Most: time.Minute, Alone: yes}).Due())
}

func TestALookoutEndsWhenThereIsSomethingElseToDo(t *testing.T) {
	both(t, func(t *testing.T, near, _ net.Conn) {
		var to told
		left := 0
		l := brief.NewLookout(near, brief.Habit{Most: time.Minute, Alone: func() bool { left--; return left >= 0 }, Told: to.add})
		require.False(t, l.Due(), "it is not even to begin")
		for i := range 3 { // none is left out: that was not in vain
			left = 3
			require.True(t, l.Due())
			l.Arm()
			require.NoError(t, near.SetReadDeadline(time.Now()))
			_, err := near.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Len(t, to.found, i+1)
			require.False(t, to.found[i])
			require.Equal(t, -1, left, "asked before each look")
		}
		l.Arm()
		_, err := near.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Len(t, to.found, 3, "a look that did not begin is none")
	})
}
