package trace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/scoring"
)

func TestTheCoreMakesTheExpectedScheduleOnRealTraces(t *testing.T) {
	for name, lines := range map[string]int{"bank_january": 26_772, "openb33": 7_169} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded, want := realTrace(t, name)
			require.Len(t, want, lines)
			audit := NewAuditor()
			got, err := Simulate(loaded, articleWeights(), audit)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, Findings{Placements: lines}, audit.Findings(), audit.Examples())
		})
	}
}

func TestTheCoreEqualsTheNaiveScheduleOnTheGeneratedDay(t *testing.T) {
	g := generated(t, DefaultGenerateOptions())
	for _, w := range []scoring.Weights{scoring.Default(), articleWeights()} {
		audit := NewAuditor()
		got, err := Simulate(g, w, audit)
		require.NoError(t, err)
		require.Equal(t, Naive(g, w), got)
		require.Equal(t, Findings{Placements: len(g.Jobs)}, audit.Findings(), audit.Examples())
	}
}

// Small traces with many coincidences: few instants, few types, slots that go
// offline and online while they are busy, and weights that give equal scores.
func TestTheCoreEqualsTheNaiveScheduleOnRandomTraces(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 1000
	}
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 1))
		tr, w := randomTrace(r), randomWeights(r)
		audit := NewAuditor()
		got, err := Simulate(tr, w, audit)
		require.NoError(t, err, "seed %d", seed)
		want := Naive(tr, w)
		if !slices.Equal(want, got) {
			require.Equal(t, want, got, "seed %d: weights %+v, trace %+v", seed, w, tr)
		}
		found := audit.Findings()
		require.Equal(t, Findings{Placements: len(want), Lost: len(tr.Jobs) - len(want)}, found, "seed %d: %v", seed, audit.Examples())
	}
}

func TestSimulateRefusesWeightsThatAreNotValid(t *testing.T) {
	_, err := Simulate(small(), scoring.Weights{}, nil)
	require.ErrorContains(t, err, "ageing")
}

func randomTrace(r *rand.Rand) *Trace {
	types := []string{"a", "b", "c", "d"}[:1+r.IntN(4)]
	tr := &Trace{Name: "random"}
	for i := range 1 + r.IntN(5) {
		set := slices.DeleteFunc(slices.Clone(types), func(string) bool { return r.IntN(2) == 0 })
		if len(set) == 0 {
			set = types[:1]
		}
		tr.Slots = append(tr.Slots, Slot{ID: int64(3 * (i + 1)), Worker: fmt.Sprint("w", r.IntN(3)), Types: set})
	}
	if r.IntN(4) > 0 {
		for _, s := range tr.Slots {
			for at := int64(r.IntN(3)); r.IntN(6) > 0; {
				tr.Events = append(tr.Events, SlotEvent{AtMS: at * 500, Slot: s.ID, Kind: Register})
				at += 1 + int64(r.IntN(8))
				if r.IntN(8) == 0 {
					break
				}
				tr.Events = append(tr.Events, SlotEvent{AtMS: at * 500, Slot: s.ID, Kind: Drain})
				at += int64(r.IntN(4)) // 0: the slot is online again in the same instant
			}
		}
	}
	online := tr.Types()
	for _, id := range r.Perm(1 + r.IntN(40)) {
		tr.Jobs = append(tr.Jobs, Job{
			ID: int64(id + 1), ArrivalMS: int64(r.IntN(20)) * 500, Type: online[r.IntN(len(online))],
			Priority: dispatcherd.Priority(r.IntN(11)), Mode: dispatcherd.Mode(r.IntN(2)), DurationMS: int64(1+r.IntN(10)) * 500,
		})
	}
	if r.IntN(2) == 0 { // durations of all classes, and expected ones that have nothing to do with them
		for i := range tr.Jobs {
			tr.Jobs[i].DurationMS = 1 + r.Int64N(5000)
			tr.Jobs[i].ExpectedMS = int64(r.IntN(2)) << r.IntN(30)
		}
	}
	tr.sort()
	return tr
}

func randomWeights(r *rand.Rand) scoring.Weights {
	w := scoring.Default()
	switch r.IntN(4) {
	case 0:
		w = articleWeights()
	case 1: // all scores may be equal
		w = scoring.Weights{Priority: int64(r.IntN(2)), Ageing: 1, Rarity: int64(r.IntN(3)), OnDemand: int64(r.IntN(3)),
			OnDemandAgeing: int64(r.IntN(2)), OnDemandCap: time.Duration(r.IntN(4)) * time.Second}
	case 2: // the cap is reached often
		w.OnDemandCap = time.Duration(r.IntN(6)) * time.Second
		w.OnDemandAgeing, w.Priority = 500, 100
	}
	if r.IntN(2) == 0 {
		w.DurationWindow = time.Duration(1+r.IntN(1000)) << r.IntN(16) * time.Millisecond
	}
	return w
}
