package background

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

const topic, other = contract.DispatcherLost, contract.RowWatched

var (
	start     = time.Unix(1000, 0)
	errFailed = errors.New("failed")
)

// at returns a local time.
func at(after time.Duration) time.Time { return start.Add(after) }

// stepped returns a turn whose first step has ended at the start and returned a wait of one minute.
func stepped(s Service) *Turn {
	s.Topics |= topic
	t := NewTurn(&s, rand.New(rand.NewPCG(1, 1)))
	t.Beat(Beat{Term: 1, Clock: start, Read: start})
	t.Begin(start)
	t.End(start, time.Minute, nil)
	return t
}

func TestFirstStepIsDueAtOnce(t *testing.T) {
	turn := NewTurn(&Service{}, nil)
	require.Zero(t, turn.Pause(start))
}

func TestStepRepeatsAfterItsWait(t *testing.T) {
	turn := stepped(Service{})
	require.Equal(t, time.Minute, turn.Pause(start))
	require.Equal(t, time.Second, turn.Pause(at(59*time.Second)))
	require.Zero(t, turn.Pause(at(61*time.Second)))
	turn.Begin(start)
	turn.End(start, 100*time.Hour, nil)
	require.Equal(t, idle, turn.Pause(start))
}

func TestTopicCausesAStepAfterTheRest(t *testing.T) {
	turn := stepped(Service{Rest: 50 * time.Millisecond})
	turn.Wake(other)
	require.Equal(t, time.Minute, turn.Pause(start), "a topic of other services")
	turn.Wake(topic | other)
	require.Equal(t, 50*time.Millisecond, turn.Pause(start))
	require.Zero(t, turn.Pause(at(time.Second)))
	require.Equal(t, topic, turn.Begin(at(time.Second)).Woken)
	turn.End(at(time.Second), time.Minute, nil)
	require.Zero(t, turn.Begin(at(2*time.Second)).Woken)
}

func TestTopicDuringAStepCausesAnother(t *testing.T) {
	turn := stepped(Service{})
	turn.Begin(start)
	turn.Wake(topic)
	turn.End(at(time.Second), time.Minute, nil)
	require.Zero(t, turn.Pause(at(time.Second)))
	require.Equal(t, topic, turn.Begin(at(time.Second)).Woken)
}

func TestTopicsDoNotShortenThePauseAfterAFailure(t *testing.T) {
	turn := stepped(Service{})
	for _, most := range []time.Duration{20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 8000, 8000} {
		turn.Begin(start)
		turn.End(start, 0, errFailed)
		turn.Wake(topic)
		turn.Beat(Beat{Term: 1, Clock: start, Read: start, Found: topic})
		require.LessOrEqual(t, turn.Pause(start), most*time.Millisecond)
		require.GreaterOrEqual(t, turn.Pause(start), most*time.Millisecond/2)
	}
	turn.Beat(Beat{Term: 1, Clock: start, Read: start, Outage: true})
	require.Zero(t, turn.Pause(start), "Postgres answers again")
}

func TestOneSeriesOfFailuresHasABeginAndAnEnd(t *testing.T) {
	turn := stepped(Service{})
	var outcomes []Outcome
	for _, err := range []error{errFailed, errFailed, nil, nil, errFailed} {
		turn.Begin(start)
		outcomes = append(outcomes, turn.End(start, 0, err))
	}
	require.Equal(t, []Outcome{Failed, FailedAgain, Recovered, Succeeded, Failed}, outcomes)
}

func TestWhatAFailedStepWasToldIsToldAgain(t *testing.T) {
	turn := stepped(Service{})
	turn.Wake(topic)
	turn.Beat(Beat{Term: 1, Clock: at(time.Hour), Read: start})
	now := turn.Begin(start)
	require.Equal(t, topic, now.Woken)
	require.Equal(t, time.Hour, now.Moved)
	turn.End(start, 0, errFailed)
	now = turn.Begin(start)
	require.Equal(t, topic, now.Woken)
	require.Equal(t, time.Hour, now.Moved)
	turn.End(start, 0, nil)
	now = turn.Begin(start)
	require.Zero(t, now.Woken)
	require.Zero(t, now.Moved)
}

func TestJumpOfTheDatabaseClockMakesAStepDue(t *testing.T) {
	turn := stepped(Service{Rest: time.Second})
	turn.Beat(Beat{Term: 1, Clock: at(10*time.Second + 900*time.Millisecond), Read: at(10 * time.Second)})
	require.NotZero(t, turn.Pause(at(10*time.Second)), "an inexact read")
	turn.Beat(Beat{Term: 1, Clock: at(5 * time.Second), Read: at(11 * time.Second)})
	require.Zero(t, turn.Pause(at(11*time.Second)))
	now := turn.Begin(at(11 * time.Second))
	require.Equal(t, -6*time.Second-900*time.Millisecond, now.Moved)
	require.Equal(t, at(6*time.Second), now.Database(at(12*time.Second)))
}

// A lost notification costs at most the time until the next heartbeat.
func TestHeartbeatFindsALostNotification(t *testing.T) {
	turn := stepped(Service{Rest: time.Millisecond})
	turn.Beat(Beat{Term: 1, Clock: at(time.Second), Read: at(time.Second), Found: topic | other})
	require.Zero(t, turn.Pause(at(time.Second)))
	require.Equal(t, topic, turn.Begin(at(time.Second)).Woken)
}

func TestLossOfTheRoleEndsTheStepAndResets(t *testing.T) {
	resets := 0
	s := Service{Controller: true, Reset: func() { resets++ }, Step: func(context.Context, Now) (time.Duration, error) {
		panic("not the controller")
	}}
	turn := stepped(s)
	turn.Begin(start)
	require.True(t, turn.Ready())
	require.False(t, turn.Beat(Beat{Term: 1, Clock: start, Read: start}))
	require.True(t, turn.Beat(Beat{Clock: start, Read: start}))
	require.False(t, turn.Ready())
	require.Equal(t, Discontinued, turn.End(start, 0, errFailed), "no failure")
	require.Zero(t, turn.Pause(start), "the reset is due")
	wait, err := s.Do(t.Context(), turn.Begin(start))
	require.NoError(t, err)
	require.Equal(t, 1, resets)
	turn.End(start, wait, err)
	turn.Wake(topic)
	require.Equal(t, idle, turn.Pause(start))
}

func TestNewTermBeginsAtOnceAlsoAfterAFailure(t *testing.T) {
	turn := stepped(Service{Controller: true})
	turn.Begin(start)
	turn.End(start, 0, errFailed)
	turn.Beat(Beat{Term: 2, Clock: start, Read: start})
	require.Zero(t, turn.Pause(start))
	now := turn.Begin(start)
	require.EqualValues(t, 2, now.Term)
	require.True(t, now.reset)
	require.Equal(t, Recovered, turn.End(start, 0, nil))
}

func TestServiceOfAllDispatchersDoesNotResetWithTheTerm(t *testing.T) {
	turn := stepped(Service{})
	turn.Begin(start)
	require.False(t, turn.Beat(Beat{Clock: start, Read: start}))
	turn.End(start, time.Minute, nil)
	require.True(t, turn.Ready())
	require.False(t, turn.Begin(start).reset)
}
