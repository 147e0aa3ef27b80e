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

	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// historyHash runs a random walk and returns a hash of the time and type of each
// event, of all effects with their requests, and of the statistics and slots at the
// end.
func historyHash(seed uint64, turns int) string {
	h := sha256.New()
	w := newRandomWalk(seed, nil)
	w.watch = func(ev Event, fx []effect.Effect) {
		fmt.Fprintf(h, "%d %T\n", w.now, ev)
		for _, e := range fx {
			printEffect(h, e)
		}
	}
	for range turns {
		w.turn()
	}
	fmt.Fprintf(h, "%+v %+v", w.core.Stats(), w.core.Slots())
	return fmt.Sprintf("%x after %d placements", h.Sum(nil), w.core.Stats().Placed)
}

// printEffect writes an effect with the contents of its requests instead of
// their addresses.
func printEffect(h hash.Hash, e effect.Effect) {
	switch e := e.(type) {
	case *effect.Fetch:
		fmt.Fprintf(h, "%T %+v\n", e, *e.Request)
	case *effect.Claim:
		fmt.Fprintf(h, "%T %+v\n", e, *e.Request)
	case *effect.Resolve:
		fmt.Fprintf(h, "%T %+v\n", e, *e.Request)
	case *effect.Finish:
		fmt.Fprintf(h, "%T %v\n", e, e.Request.Again)
		for i := range e.Request.Items {
			f := e.Request.Items[i]
			if f.Placement != nil {
				fmt.Fprintf(h, "%+v ", *f.Placement)
				f.Placement = nil
			}
			fmt.Fprintf(h, "%+v\n", f)
		}
	case *effect.Adopt:
		fmt.Fprintf(h, "%T %+v\n", e, *e.Request)
	default:
		fmt.Fprintf(h, "%T %+v\n", e, e)
	}
}

const (
	walkSeed      = 11
	walkTurns     = 4_000
	childVariable = "DISPATCHERD_TEST_FINGERPRINT"
)

// The effects are equal byte for byte for any number of processors, and in
// other processes, where maps have other seeds.
func TestSameEventsGiveSameEffects(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		fmt.Println(childVariable, historyHash(walkSeed, walkTurns))
		return
	}
	want := historyHash(walkSeed, walkTurns)
	require.NotEqual(t, want, historyHash(walkSeed+1, walkTurns), "another seed must give another hash")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	require.Equal(t, want, historyHash(walkSeed, walkTurns))
	for _, processors := range []string{"1", "2", "7"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSameEventsGiveSameEffects$")
		cmd.Env = append(os.Environ(), childVariable+"=1", "GOMAXPROCS="+processors, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, strings.Split(string(out), "\n"), childVariable+" "+want)
	}
}
