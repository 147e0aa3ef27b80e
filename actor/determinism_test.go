package actor

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fingerprint lives a random life and returns a hash of every event, every
// effect and all that the effects point to.
func fingerprint(seed uint64, turns int) string {
	h := sha256.New()
	w := newWhirl(seed, nil)
	w.watch = func(ev Event, fx []Effect) {
		fmt.Fprintf(h, "%d %T\n", w.now, ev)
		for i := range fx {
			printEffect(h, fx[i])
		}
	}
	for range turns {
		w.turn()
	}
	fmt.Fprintf(h, "%+v %+v", w.core.Stats(), w.core.Slots())
	return fmt.Sprintf("%x after %d placements", h.Sum(nil), w.core.Stats().Placed)
}

// printEffect writes an effect with the contents of its requests, not their
// addresses.
func printEffect(h hash.Hash, e Effect) {
	if e.Fetch != nil {
		fmt.Fprintf(h, "%+v ", *e.Fetch)
	}
	if e.Claim != nil {
		fmt.Fprintf(h, "%+v ", *e.Claim)
	}
	if e.Finish != nil {
		fmt.Fprintf(h, "%+v ", *e.Finish)
	}
	if e.Adopt != nil {
		fmt.Fprintf(h, "%+v ", *e.Adopt)
	}
	e.Fetch, e.Claim, e.Finish, e.Adopt = nil, nil, nil, nil
	fmt.Fprintf(h, "%+v\n", e)
}

const (
	lifeSeed  = 11
	lifeTurns = 12_000
	childMark = "DISPATCHERD_TEST_FINGERPRINT"
)

// TestTheSameEventsGiveTheSameEffects: byte for byte, however many processors
// there are, and in other processes with other seeds of their maps.
func TestTheSameEventsGiveTheSameEffects(t *testing.T) {
	if os.Getenv(childMark) != "" {
		fmt.Println(childMark, fingerprint(lifeSeed, lifeTurns))
		return
	}
	want := fingerprint(lifeSeed, lifeTurns)
	require.NotEqual(t, want, fingerprint(lifeSeed+1, lifeTurns), "a hash that never differs proves nothing")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	require.Equal(t, want, fingerprint(lifeSeed, lifeTurns))
	for _, processors := range []string{"1", "2", "7"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTheSameEventsGiveTheSameEffects$")
		cmd.Env = append(os.Environ(), childMark+"=1", "GOMAXPROCS="+processors, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, strings.Split(string(out), "\n"), childMark+" "+want)
	}
}
