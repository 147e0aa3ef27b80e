package journal

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/sim"
)

// recordWorld lives through a simulated world with a recorder for every life of
// every dispatcher.
func recordWorld(o sim.Options, bytes int) ([]*Recorder, sim.Result) {
	var all []*Recorder
	o.Journal = func(dispatcher int, life uint32) actor.Journal {
		r := NewRecorder(fmt.Sprintf("dispatcher %d, life %d", dispatcher, life), bytes)
		all = append(all, r)
		return r
	}
	return all, sim.Run(o)
}

// written writes and reads a file.
func written(t *testing.T, recorders ...*Recorder) *File {
	var b bytes.Buffer
	require.NoError(t, Write(&b, nil, recorders...))
	f, err := Read(&b)
	require.NoError(t, err)
	return f
}

// Whatever happens to a dispatcher, the recorder's state, events and effects are
// complete: every step is made again exactly, from every state that a segment
// begins with.
func TestEveryStepOfASimulatedWorldIsMadeAgain(t *testing.T) {
	kindsSeen := []string{}
	for seed := range uint64(6) {
		limit := []int{Unbounded, MinBytes}[seed%2]
		recorders, r := recordWorld(sim.Options{Seed: seed, Faults: sim.All, Steps: 20_000}, limit)
		require.Nil(t, r.Violation)
		f := written(t, recorders...)
		steps := 0
		require.NoError(t, f.Replay(func(s *Step) error {
			steps++
			require.False(t, s.Differs(), "seed %d, step %d of %s: %T: %+v", seed, s.Number, s.Segment.Name, s.Event, s.Effects)
			if name := fmt.Sprintf("%T", s.Event); !slices.Contains(kindsSeen, name) {
				kindsSeen = append(kindsSeen, name)
			}
			return nil
		}))
		if limit == Unbounded {
			require.Equal(t, r.Stats.Steps, steps)
			continue
		}
		require.Positive(t, steps)
		for _, rec := range recorders {
			require.LessOrEqual(t, rec.Stats().Bytes, limit)
			require.Zero(t, rec.Stats().Lost)
		}
	}
	require.Greater(t, len(kindsSeen), 16)
	require.Contains(t, kindsSeen, "actor.Adopted")
}
