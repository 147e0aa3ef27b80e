package trace

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// seen is one step of a core.
type seen struct {
	at timing.Instant
	ev actor.Event
	fx []effect.Effect
}

// sentTo is a job that was placed at an instant.
func sentTo(slot dispatcherd.SlotID, job dispatcherd.JobID, at timing.Instant) []effect.Effect {
	return []effect.Effect{&effect.Send{Session: 1, Slot: slot, Job: job, Type: "pdf", PlacedAt: at}}
}

// requestTo is a request that was placed at an instant.
func requestTo(slot dispatcherd.SlotID, job dispatcherd.JobID, at timing.Instant) []effect.Effect {
	fx := sentTo(slot, job, at)
	fx[0].(*effect.Send).Mode = dispatcherd.OnDemand
	return fx
}

// claimOf is a claim that is sent.
func claimOf(jobs ...dispatcherd.JobID) []effect.Effect {
	return []effect.Effect{&effect.Claim{Request: &contract.ClaimRequest{IDs: jobs}}}
}

func TestWatchCountsEveryViolation(t *testing.T) {
	slots := actor.Registered{Session: 1, Slots: []dispatcherd.Slot{
		{ID: 1, Number: 10, Types: []string{"pdf"}},
		{ID: 2, Number: 20, Types: []string{"excel", "pdf"}},
		{ID: 3, Number: 30, Types: []string{"excel"}},
	}}
	released := func(job dispatcherd.JobID) actor.Event {
		return actor.Released{Session: 1, Results: []actor.Result{{Job: job, Attempt: 1, OK: true}}}
	}
	for name, c := range map[string]struct {
		steps []seen
		want  Findings
	}{
		"a versatile slot used while a specialised one is free": {
			[]seen{{1000, actor.Tick{}, sentTo(2, 7, 1000)}}, Findings{Placements: 1, Misplaced: 1}},
		"no violation: the specialised slot is used": {
			[]seen{{1000, actor.Tick{}, sentTo(1, 7, 1000)}}, Findings{Placements: 1}},
		"no violation: the specialised slot is busy": {
			[]seen{{1000, actor.Tick{}, sentTo(1, 7, 1000)}, {2000, actor.Tick{}, sentTo(2, 8, 2000)}}, Findings{Placements: 2}},
		"no violation: the specialised slot became free between placement and send": {
			[]seen{
				{1000, actor.Tick{}, sentTo(1, 7, 1000)},
				{2000, released(7), nil},
				{2050, actor.Tick{}, sentTo(2, 8, 1950)},
			}, Findings{Placements: 2}},
		"a placement long after the specialised slot became free": {
			[]seen{
				{1000, actor.Tick{}, sentTo(1, 7, 1000)},
				{2000, released(7), nil},
				{2050, actor.Tick{}, sentTo(2, 8, 2040)},
			}, Findings{Placements: 2, Misplaced: 1}},
		"no violation: the specialised slot was reserved and used later": {
			[]seen{
				{1000, actor.Tick{}, sentTo(2, 8, 1000)},
				{1100, actor.Tick{}, sentTo(1, 7, 900)},
			}, Findings{Placements: 2}},
		"no violation: the specialised slot was reserved, and withdrawn before the send": {
			[]seen{
				{1000, actor.Tick{}, sentTo(2, 8, 1000)},
				{1050, actor.Withdrew{Session: 1, Numbers: []int32{10}}, nil},
				{1100, actor.Tick{}, sentTo(1, 7, 900)},
			}, Findings{Placements: 2}},
		"no violation: the specialised slot may have been reserved, and was withdrawn before the claim was answered": {
			[]seen{
				{1000, actor.Tick{}, sentTo(2, 8, 1000)}, {1050, actor.Withdrew{Session: 1, Numbers: []int32{10}}, nil},
			}, Findings{Placements: 1}},
		"no violation: the specialised slot may have been reserved, and a request preempted the row": {
			[]seen{{1000, actor.Tick{}, sentTo(2, 8, 1000)}, {1050, actor.Tick{}, requestTo(1, -3, 1050)}}, Findings{Placements: 2}},
		"no violation: the specialised slot was reserved, and a row claimed earlier was assigned to it": {
			[]seen{
				{900, actor.Tick{}, claimOf(3)}, {1000, actor.Tick{}, sentTo(2, 8, 1000)}, {1050, actor.Tick{}, sentTo(1, 3, 1050)},
			}, Findings{Placements: 2}},
		"a row that was claimed later is not assigned to a reserved slot": {
			[]seen{
				{1000, actor.Tick{}, sentTo(2, 8, 1000)}, {1050, actor.Tick{}, claimOf(3)}, {1060, actor.Tick{}, sentTo(1, 3, 1050)},
			}, Findings{Placements: 2, Misplaced: 1}},
		"no violation: the specialised slot became free in the same millisecond": {
			[]seen{
				{1000, actor.Tick{}, sentTo(1, 7, 1000)},
				{2000, released(7), nil},
				{2000, actor.Tick{}, sentTo(2, 8, 2000)},
			}, Findings{Placements: 2}},
		"a late step does not hide the violation": {
			[]seen{
				{1000, actor.Tick{}, sentTo(1, 7, 1000)},
				{2000, released(7), nil},
				{9000, actor.Tick{}, sentTo(2, 8, 2001)},
			}, Findings{Placements: 2, Misplaced: 1}},
		"a specialised slot that was free for longer than any claim takes": {
			[]seen{
				{1000, actor.Tick{}, sentTo(2, 8, 1000)}, {1000 + 2*uncertainMS, actor.Tick{}, requestTo(1, -3, 1000+2*uncertainMS)},
			}, Findings{Placements: 2, Misplaced: 1}},
		"no violation: the specialised slot was withdrawn": {
			[]seen{{900, actor.Withdrew{Session: 1, Numbers: []int32{10}}, nil}, {1000, actor.Tick{}, sentTo(2, 7, 1000)}}, Findings{Placements: 1}},
		"no violation: the specialised slot is withdrawn with all others and then released": {
			[]seen{
				{800, actor.Tick{}, sentTo(1, 7, 800)}, {850, actor.Tick{}, sentTo(2, 8, 850)},
				{900, actor.Withdrew{Session: 1}, nil}, {950, released(7), nil}, {960, released(7), nil},
			}, Findings{Placements: 2}},
		"a slot without the type": {
			[]seen{{1000, actor.Tick{}, sentTo(3, 7, 1000)}}, Findings{Placements: 1, AffinityViolations: 1}},
		"a slot that does not exist": {
			[]seen{{1000, actor.Tick{}, sentTo(9, 7, 1000)}}, Findings{Placements: 1, AffinityViolations: 1}},
		"a job in two places and two jobs on one slot": {
			[]seen{{1000, actor.Tick{}, sentTo(1, 7, 1000)}, {1001, actor.Tick{}, sentTo(2, 7, 1001)}, {1002, actor.Tick{}, sentTo(1, 8, 1002)}},
			Findings{Placements: 3, DoublePlacements: 2}},
		"no violation: the session of the specialised slot ended": {
			[]seen{
				{1000, actor.Tick{}, sentTo(1, 7, 1000)},
				{
					1100,
					actor.Together{Events: []actor.Event{
						actor.Unregistered{Session: 1},
						actor.Registered{Session: 2, Slots: []dispatcherd.Slot{{ID: 4, Types: []string{"pdf"}}}},
					}},
					nil,
				},
				{1200, actor.Tick{}, func() []effect.Effect { fx := sentTo(4, 7, 1200); fx[0].(*effect.Send).Session = 2; return fx }()},
			}, Findings{Placements: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWatch()
			w.Step(0, slots, nil)
			for _, step := range c.steps {
				w.Step(step.at, step.ev, step.fx)
			}
			require.Equal(t, c.want, w.Findings())
		})
	}
}

func TestCompressedWeightsKeepTheArticlesNumbers(t *testing.T) {
	c, err := Compress(scoring.Default(), 1000)
	require.NoError(t, err)
	full := scoring.Default()
	for _, age := range []int64{0, 64_000, 320_000, 1_000_000} {
		require.Equal(t, full.Score(dispatcherd.OnDemand, 3, age, 2), c.Score(dispatcherd.OnDemand, 3, age/1000, 2))
	}
	_, err = Compress(scoring.Default(), 100_000)
	require.ErrorContains(t, err, "choose a lower speed")
	c, err = Compress(articleWeights(), 8000)
	require.NoError(t, err)
	require.Equal(t, scoring.NoCap, c.OnDemandCap)
}
