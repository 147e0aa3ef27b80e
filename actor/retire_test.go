package actor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// stepper makes steps of a core with a small Limits.StepWork and checks the core after
// each of them.
type stepper struct {
	t        *testing.T
	core     *Core
	now      timing.Instant
	lastSlot dispatcherd.SlotID
	most     int // the largest work of a step
	steps    int
	started  []dispatcherd.JobID
	fx       []effect.Effect // of the last step
}

func newStepper(t *testing.T, work int) *stepper {
	cfg := DefaultConfig()
	cfg.Limits.StepWork = work
	cfg.Resume = time.Minute
	return &stepper{t: t, core: New(cfg)}
}

func (s *stepper) step(ev Event) {
	s.now++
	s.fx = s.core.Step(s.now, ev, nil)
	require.NoError(s.t, s.core.Check())
	s.most = max(s.most, s.core.worked())
	s.steps++
	for _, e := range s.fx {
		if e, ok := e.(*effect.Started); ok {
			s.started = append(s.started, e.Job)
		}
	}
}

// finishWork makes the steps that the core asks for at once, and returns their number.
func (s *stepper) finishWork() (steps int) {
	for s.core.hasWorkLeft() || s.core.firstAlarm() <= s.now {
		require.LessOrEqual(s.t, s.core.NextWake(), s.now+1)
		s.step(Tick{})
		steps++
	}
	return steps
}

// register adds slots of a session. left says which of the types a slot does not
// support.
func (s *stepper) register(id dispatcherd.SessionID, slots, types int, left func(slot int) int) {
	ev := Registered{Session: id, Worker: "w", Fingerprint: contract.Fingerprint(id) << 16}
	for i := range slots {
		s.lastSlot++
		slot := dispatcherd.Slot{ID: s.lastSlot, Number: int32(i)}
		for k := range types {
			if k != left(i) {
				slot.Types = append(slot.Types, typeName(k))
			}
		}
		ev.Slots = append(ev.Slots, slot)
	}
	s.step(ev)
	s.finishWork()
}

func none(int) int { return -1 }

func typeName(k int) string { return fmt.Sprintf("t%04d", k) }

func (s *stepper) request(id dispatcherd.JobID, typ int) {
	s.step(Requested{Job: -id, Type: typeName(typ), Wait: true})
}

func TestLargeSessionIsRemovedInBoundedSteps(t *testing.T) {
	s := newStepper(t, 2000)
	s.register(1, 100, 301, func(slot int) int { return slot })
	s.register(2, 1, 301, none)
	s.most = 0
	s.step(Unregistered{Session: 1})
	require.Greater(t, s.finishWork(), 10)
	require.Less(t, s.most, 3*2000, "a part of a step may exceed its budget by one slot")
	require.Equal(t, 1, s.core.index.Len())
	require.Equal(t, 301, s.core.quotas.SlotTypes.Held())
	require.Equal(t, 301, s.core.quotas.Types.Held())
}

func TestSlotsOfAnEndedSessionGetNoJobWhileTheyAreRemoved(t *testing.T) {
	s := newStepper(t, 2000)
	s.register(1, 100, 301, func(slot int) int { return slot })
	s.register(2, 1, 302, none) // more types than the slots of session 1, so it comes last
	s.step(Unregistered{Session: 1})
	require.NotEmpty(t, s.core.retired)
	s.request(1, 7)
	require.NotEmpty(t, s.core.retired)
	require.Equal(t, []dispatcherd.JobID{-1}, s.started)
	require.EqualValues(t, 2, s.core.jobs[-1].sentTo)
	s.request(2, 7)
	s.finishWork()
	require.Len(t, s.started, 1, "no other slot is left")
}

func TestJobsOfAnEndedSessionAreHandledInBoundedSteps(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 200, 3, none)
	for i := range 200 {
		s.request(dispatcherd.JobID(i+1), i%3)
	}
	require.Len(t, s.started, 200)
	s.most = 0
	s.step(Unregistered{Session: 1})
	require.Greater(t, s.finishWork(), 10)
	require.Less(t, s.most, 4*100)
	require.Equal(t, 200, s.core.quotas.Requests.Held())
	s.started = nil
	s.register(2, 200, 3, none)
	for i, id := range s.started {
		require.EqualValues(t, -1-i, id, "requests keep their order")
	}
	require.Len(t, s.started, 200)
}

func TestJobOfAnEndedSessionMayBeResumedBeforeItIsHandled(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 200, 3, none)
	for i := range 200 {
		s.request(dispatcherd.JobID(i+1), i%3)
	}
	s.step(Unregistered{Session: 1})
	last := s.core.lost[len(s.core.lost)-1]
	j := s.core.slots[last.slot].job
	j.fingerprint = 1 << 16
	s.lastSlot++
	s.step(Registered{Session: 2, Worker: "w", Fingerprint: 2 << 16, Offers: []ResumeOffer{{
		Job: j.id, Mode: dispatcherd.OnDemand, Attempt: j.attempt, From: 1 << 16,
		Slot: dispatcherd.Slot{ID: s.lastSlot, Types: []string{s.core.index.Name(j.Type)}},
	}}})
	require.NotEmpty(t, s.core.lost)
	s.finishWork()
	require.EqualValues(t, 2, j.sentTo)
	require.True(t, j.state.executing())
	require.Equal(t, 199, s.core.quotas.Requests.Held())
}

func TestTimeoutOfAJobWhoseSessionHasEndedIsHarmless(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 200, 3, none)
	for i := range 200 {
		s.step(Requested{Job: -dispatcherd.JobID(i + 1), Type: typeName(0), Deadline: 10 * time.Second})
	}
	s.now = 10_300 // all deadlines have passed
	s.step(Tick{})
	s.finishWork()
	s.now = 20_500 // the worker has ignored the cancels
	s.step(Unregistered{Session: 1})
	s.finishWork()
	require.Zero(t, s.core.index.Len())
	require.Len(t, s.core.jobs, s.core.quotas.Requests.Held())
}

func TestPlacementContinuesInTheNextStepInTheSameOrder(t *testing.T) {
	s := newStepper(t, 100)
	for i := range 200 {
		s.request(dispatcherd.JobID(i+1), i%3)
	}
	s.most = 0
	before := s.steps
	s.register(1, 200, 3, none)
	require.Greater(t, s.steps-before, 15)
	require.Len(t, s.started, 200)
	for i, id := range s.started {
		require.EqualValues(t, -1-i, id)
	}
}

func TestDeadlinesOfManyRequestsAreHandledInBoundedSteps(t *testing.T) {
	s := newStepper(t, 100)
	for i := range 200 {
		s.step(Requested{Job: -dispatcherd.JobID(i + 1), Type: typeName(0), Wait: true, Deadline: time.Second})
	}
	s.now, s.most = 2000, 0
	steps := 0
	for ; s.core.quotas.Requests.Held() > 0; steps++ {
		require.LessOrEqual(t, s.core.NextWake(), s.now+1)
		s.step(Tick{})
	}
	require.Greater(t, steps, 15)
	require.Less(t, s.most, 3*100)
}

func TestClusterCapacityReachesEveryTypeInBoundedSteps(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 1, 200, none)
	ev := ClusterCapacity{Capacity: map[string]int{}}
	for k := range 200 {
		ev.Capacity[typeName(k)] = 7
	}
	s.step(ev)
	require.Greater(t, s.finishWork(), 10)
	for t2 := range s.core.types {
		require.EqualValues(t, 7, s.core.types[t2].otherSlots)
	}
}

func TestWelcomeWaitsForTheLastPortionOfTheOffers(t *testing.T) {
	s := newStepper(t, 100)
	welcomed := func() (n int) {
		for _, e := range s.fx {
			if _, ok := e.(*effect.Welcome); ok {
				n++
			}
		}
		return n
	}
	for i := range 3 {
		s.step(Registered{Session: 1, Worker: "w", Fingerprint: 1 << 16, MoreOffers: i < 2, Offers: []ResumeOffer{{
			Job: dispatcherd.JobID(-1 - i), Mode: dispatcherd.OnDemand, Attempt: 1, From: 2 << 16,
			Slot: dispatcherd.Slot{ID: dispatcherd.SlotID(i + 1), Number: int32(i), Types: []string{"a"}},
		}}})
		require.Equal(t, i/2, welcomed(), "after portion %d", i)
	}
}

func TestOneStepLogsABoundedNumberOfWaitingTypes(t *testing.T) {
	s := newStepper(t, 1_000_000)
	for k := range 600 {
		s.request(dispatcherd.JobID(k+1), k)
	}
	s.register(1, 1, 600, none)
	waiting := 0
	for i := range s.core.Decisions() {
		if s.core.Decisions()[i].Kind == DecisionWaiting {
			waiting++
		}
	}
	require.Equal(t, waitLogsPerStep, waiting)
}

// The last slot of a type is more work than a slot of a type that stays.
func TestForgottenTypesCountAsWork(t *testing.T) {
	s := newStepper(t, 100)
	var slots []dispatcherd.Slot
	for i := range 200 {
		slots = append(slots, dispatcherd.Slot{ID: dispatcherd.SlotID(i + 1), Number: int32(i), Types: []string{typeName(i)}})
	}
	s.step(Registered{Session: 1, Worker: "w", Slots: slots})
	s.step(Unregistered{Session: 1})
	require.Greater(t, s.finishWork(), 15)
	require.Zero(t, s.core.quotas.Types.Held())
}

// A capacity wait begins when the last slot of the type is removed, and ends when a slot is added. A step visits the requests
// of the type at these two transitions only.
func TestCapacityWaitsFollowTheSlotsOfTheirType(t *testing.T) {
	s := newStepper(t, 100)
	for i := range 200 {
		s.step(Requested{Job: -dispatcherd.JobID(i + 1), Type: typeName(0), Wait: true, CapacityWait: time.Second, Deadline: time.Minute})
	}
	s.now, s.most = 900, 0
	busy := dispatcherd.Slot{ID: 1, Types: []string{typeName(0)}}
	s.step(Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{busy}})
	s.now = 1500
	s.step(Tick{})
	s.finishWork()
	require.Equal(t, 199, s.core.quotas.Requests.Held(), "no request is answered")
	require.EqualValues(t, 60_001, s.core.jobs[-1].deadline, "it runs")
	s.now = 1999
	s.step(Unregistered{Session: 1})
	s.finishWork()
	s.now = 2900
	s.step(Tick{})
	s.finishWork()
	require.Equal(t, 200, s.core.quotas.Requests.Held())
	s.now = 3100
	s.step(Tick{})
	s.finishWork()
	require.Empty(t, s.core.jobs, "also the one that had started is answered")
	require.Less(t, s.most, 4*100)
}

// A step that finds no slot for many types ends early. The next step makes these types clean.
func TestTypesWithoutSlotAreMadeCleanInTheNextStep(t *testing.T) {
	s := newStepper(t, 1000)
	s.register(1, 1, 300, none)
	for k := range 300 {
		s.request(dispatcherd.JobID(k+1), k)
	}
	s.finishWork()
	require.Equal(t, []dispatcherd.JobID{-1}, s.started)
	s.step(Released{Session: 1, Results: []Result{{Job: -1, Attempt: 1, OK: true}}})
	require.Equal(t, []dispatcherd.JobID{-1, -2}, s.started)
	require.True(t, s.core.hasWorkLeft())
	require.Equal(t, 1, s.finishWork())
	require.Empty(t, s.core.dirty)
}
