package shell

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

const length = 10 * time.Second

func newLease(joined time.Duration) Lease {
	return NewLease(length, time.Second, 5*time.Second, joined)
}

func TestLeaseEndsTwoSecondsEarly(t *testing.T) {
	for length, end := range map[time.Duration]time.Duration{time.Second: 800 * time.Millisecond, 10 * time.Second: 8 * time.Second,
		30 * time.Second: 28 * time.Second, time.Hour: time.Hour - 2*time.Second} {
		l := NewLease(length, Interval(length), 5*time.Second, time.Second)
		require.True(t, l.Trusted(time.Second+end-1))
		require.False(t, l.Trusted(time.Second+end))
	}
}

func TestLongLeaseDoesNotDelayHeartbeats(t *testing.T) {
	require.Equal(t, 100*time.Millisecond, Interval(time.Second))
	require.Equal(t, time.Second, Interval(30*time.Second))
	require.Equal(t, time.Second, Interval(time.Hour))
}

// core returns a Core with slots of type pdf.
func core(slots int) *actor.Core {
	c := actor.New(actor.DefaultConfig())
	ev := actor.Registered{Session: 1}
	for i := range slots {
		ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(i + 1), Number: int32(i), Types: []string{"pdf"}})
	}
	c.Step(0, ev, nil)
	return c
}

func TestHeartbeatPublishesCapacityUntilTheDispatcherStops(t *testing.T) {
	l, c := newLease(0), core(3)
	require.Equal(t, map[string]int{"pdf": 3}, l.BeginHeartbeat(0, c, actor.Capacities(c)).Capacity)
	c.Step(1, actor.Drained{}, nil)
	require.Equal(t, map[string]int{}, l.BeginHeartbeat(1, c, actor.Capacities(c)).Capacity)
}

func TestCoreGetsOneEventForEachLossAndReturnOfTheLease(t *testing.T) {
	l, c := newLease(0), core(0)
	found, lost := contract.HeartbeatResult{}, contract.HeartbeatResult{LeaseLost: true}
	capacity := actor.ClusterCapacity{}
	require.Nil(t, l.Guard(7*time.Second))
	require.Equal(t, []actor.Event{actor.Disowned{}}, l.Guard(8*time.Second))
	require.Nil(t, l.Guard(9*time.Second))
	require.Empty(t, l.HeartbeatAnswered(9*time.Second, lost))
	l.BeginHeartbeat(10*time.Second, c, nil)
	require.Equal(t, []actor.Event{actor.Owned{}, capacity}, l.HeartbeatAnswered(11*time.Second, found))
	require.False(t, l.Trusted(18*time.Second), "the lease begins with the heartbeat")
	require.Equal(t, []actor.Event{capacity}, l.HeartbeatAnswered(12*time.Second, found))
	require.Equal(t, []actor.Event{actor.Disowned{}}, l.HeartbeatAnswered(13*time.Second, lost),
		"a heartbeat reports the loss before the lease ends")
	require.Equal(t, []actor.Event{actor.Owned{}}, l.Joined())
	require.True(t, l.Trusted(20*time.Second), "the lease begins with the Join")
}

func TestClaimAnsweredWithoutALeaseIsAnUnknownOutcome(t *testing.T) {
	l := newLease(0)
	require.False(t, l.Doubts(time.Second, contract.OK))
	require.True(t, l.Doubts(length, contract.OK))
	require.False(t, l.Doubts(length, contract.Refused), "a refused claim won no row, with or without a lease")
}

func TestHeartbeatReportsReleasedRowsFirst(t *testing.T) {
	l := newLease(0)
	r := contract.HeartbeatResult{OtherCapacity: map[string]int{"pdf": 3}, Unheld: []dispatcherd.JobID{8}, Cancels: []dispatcherd.JobID{7}}
	require.Equal(t, []actor.Event{actor.Notified{}, actor.ClusterCapacity{Capacity: r.OtherCapacity}, actor.CancelRequested{Jobs: r.Cancels}},
		l.HeartbeatAnswered(0, r))
}

func TestIdleDispatcherSendsHalfOfTheHeartbeatsIfTheLeaseAllows(t *testing.T) {
	busy := core(1)
	busy.Step(1, actor.Requested{Job: -1, Type: "pdf"}, nil)
	for _, c := range []struct {
		length time.Duration
		core   *actor.Core
		want   time.Duration
	}{{4 * time.Second, busy, time.Second}, {4 * time.Second, core(1), 2 * time.Second}, {4*time.Second - 1, core(1), time.Second}} {
		l := NewLease(c.length, time.Second, 5*time.Second, 0)
		l.BeginHeartbeat(0, c.core, nil)
		require.Equal(t, c.want, l.Pause(false))
		require.Equal(t, retryHeartbeat, l.Pause(true), "a failed heartbeat is repeated soon")
	}
}

func TestRenewedResumeOfferTakesNothingOver(t *testing.T) {
	result := &contract.AdoptResult{Jobs: make([]contract.Adopted, 1)}
	require.False(t, TookOver(&contract.AdoptRequest{Jobs: []contract.ResumeOffer{{Renewal: true}}}, result))
	require.True(t, TookOver(&contract.AdoptRequest{Jobs: []contract.ResumeOffer{{Renewal: true}, {}}}, result))
	require.False(t, TookOver(&contract.AdoptRequest{Jobs: []contract.ResumeOffer{{}}}, &contract.AdoptResult{}))
}

func TestStopHandsOverTheRemainingJobsAfterTheGrace(t *testing.T) {
	s := Stop{Grace: 5 * time.Second, Settle: time.Second, Resume: true}
	require.Equal(t, actor.Drained{}, s.Begin(0))
	require.Nil(t, s.Next(5*time.Second-1, false, true))
	require.Equal(t, Draining, s.Stage())
	require.Equal(t, actor.HandedOver{}, s.Next(5*time.Second, false, true))
	require.Equal(t, Settling, s.Stage())
	require.Nil(t, s.Next(6*time.Second-1, false, true))
	require.Nil(t, s.Next(6*time.Second, false, true))
	require.Equal(t, Leaving, s.Stage())
}

func TestStopInterruptsWithoutResumeOrLease(t *testing.T) {
	for _, s := range []*Stop{{Grace: time.Second, Settle: time.Second}, {Grace: time.Second, Settle: time.Second, Resume: true}} {
		s.Begin(0)
		require.Equal(t, actor.Interrupted{}, s.Next(time.Second, false, false))
		require.Nil(t, s.Next(2*time.Second-1, false, false))
		require.Equal(t, Interrupting, s.Stage())
		require.Nil(t, s.Next(2*time.Second-1, true, false))
		require.Equal(t, Settling, s.Stage())
		s.Next(2*time.Second-1, true, false)
		require.Equal(t, Leaving, s.Stage())
	}
}

func TestIdleDispatcherStopsAtOnce(t *testing.T) {
	s := Stop{Grace: time.Minute, Settle: time.Minute, Resume: true}
	s.Begin(0)
	require.Equal(t, actor.HandedOver{}, s.Next(0, true, true))
	require.Nil(t, s.Next(0, true, true))
	require.Equal(t, Leaving, s.Stage())
}

// recorder notes which component got an effect.
type recorder struct{ got []string }

func (r *recorder) note(what string) { r.got = append(r.got, what) }

type workers struct{ *recorder }

func (w workers) Send(*effect.Send)  { w.note("worker send") }
func (w workers) Tell(effect.Effect) { w.note("worker") }

type callers struct{ *recorder }

func (c callers) Started(*effect.Started) { c.note("caller started") }
func (c callers) Reported(*effect.Report) { c.note("caller report") }
func (c callers) Answer(*effect.Answer)   { c.note("caller answer") }

type rows struct{ *recorder }

func (r rows) Sent(*effect.Send)       { r.note("row sent") }
func (r rows) Reported(*effect.Report) { r.note("row report") }

func TestEffectsGoToTheirComponentsInOrder(t *testing.T) {
	r := &recorder{}
	p := Ports{
		Statement: func(e effect.Effect) { r.note(fmt.Sprintf("statement %T", e)) },
		Workers:   workers{r},
		Callers:   callers{r},
		Rows:      rows{r},
		Fail:      func(err error) { r.note(err.Error()) },
	}
	queued, onDemand := dispatcherd.Queued, dispatcherd.OnDemand
	p.Perform([]effect.Effect{
		&effect.Fetch{},
		&effect.Claim{},
		&effect.Resolve{},
		&effect.Load{},
		&effect.Adopt{},
		&effect.Finish{},
		&effect.Spawn{},
		&effect.SetGate{},
		&effect.Send{Mode: queued},
		&effect.Send{Mode: onDemand},
		&effect.Cancel{},
		&effect.GoAway{},
		&effect.Welcome{},
		&effect.Started{},
		&effect.Answer{},
		&effect.Report{Mode: queued},
		&effect.Report{Mode: onDemand},
		&effect.Violation{Err: errors.New("violation")},
	})
	require.Equal(t, []string{
		"statement *effect.Fetch", "statement *effect.Claim", "statement *effect.Resolve", "statement *effect.Load",
		"statement *effect.Adopt", "statement *effect.Finish", "statement *effect.Spawn", "statement *effect.SetGate",
		"row sent", "worker send", "worker send", "worker", "worker", "worker",
		"caller started", "caller answer", "row report", "caller report", "violation",
	}, r.got)
}

// loop notes the events of a session.
type loop struct{ got []actor.Event }

func (l *loop) order(ev actor.Event) { l.got = append(l.got, ev) }

func TestFramesThatArriveTogetherBecomeOneEventInOrder(t *testing.T) {
	l := &loop{}
	first, second := workerproto.Execution{Job: 1, Attempt: 1}, workerproto.Execution{Job: 2, Attempt: 3}
	Deliver(l.order, 7, "w", []workerproto.WorkerFrame{
		&workerproto.Progress{Execution: first, Done: 1, Total: 2}, &workerproto.Partial{Execution: second, Data: []byte("1")},
		&workerproto.Done{Execution: first}, &workerproto.Fail{Execution: second, Error: "e", Permanent: true},
		&workerproto.Log{Execution: second},
		&workerproto.SlotAdd{Slots: []workerproto.Slot{{Number: 4, Types: []string{"csv", "pdf"}}}},
		&workerproto.Release{Execution: second, Reason: "r"}, &workerproto.Partial{Execution: second},
		&workerproto.SlotRemove{Slots: []int32{4}},
		&workerproto.Spawn{Execution: second, Request: 5, Detached: true, Jobs: []byte("[]")}, &workerproto.Drain{},
	}, func(slots []workerproto.Slot) []dispatcherd.Slot { return Number(slots, 9) }, false)
	require.Equal(t, []actor.Event{
		actor.Reported{Session: 7, Reports: []contract.Report{
			{Job: 1, Attempt: 1, JSON: []byte(`{"done":1,"total":2}`)}, {Job: 2, Attempt: 3, Partial: true, JSON: []byte("1")},
		}},
		actor.Released{Session: 7, Results: []actor.Result{{Job: 1, Attempt: 1, OK: true}, {Job: 2, Attempt: 3, Error: "e", Permanent: true}}},
		actor.Registered{Session: 7, Worker: "w", Slots: []dispatcherd.Slot{{ID: 9, Number: 4, Types: []string{"csv", "pdf"}}}},
		actor.Released{Session: 7, Results: []actor.Result{{Job: 2, Attempt: 3, Returned: true, Error: "r"}}},
		actor.Reported{Session: 7, Reports: []contract.Report{{Job: 2, Attempt: 3, Partial: true}}},
		actor.Withdrew{Session: 7, Numbers: []int32{4}},
		actor.SpawnRequested{Request: &contract.SpawnRequest{Session: 7, Parent: 2, Attempt: 3, Number: 5, Jobs: []byte("[]"), Detached: true}},
		actor.Withdrew{Session: 7},
	}, l.got)
}

func TestLogFramesArePassedOnBeforeTheResult(t *testing.T) {
	l := &loop{}
	job := workerproto.Execution{Job: 2, Attempt: 3}
	Deliver(
		l.order, 7, "w",
		[]workerproto.WorkerFrame{
			&workerproto.Log{Execution: job, Level: workerproto.LevelWarn, Message: "a: b"},
			&workerproto.Done{Execution: job},
		},
		nil, true,
	)
	require.Equal(t, []actor.Event{
		actor.Reported{Session: 7, Reports: []contract.Report{{Job: 2, Attempt: 3, Log: "warn: a: b\n"}}},
		actor.Released{Session: 7, Results: []actor.Result{{Job: 2, Attempt: 3, OK: true}}},
	}, l.got)
}

func TestResultsAndReportsArriveInPortions(t *testing.T) {
	for _, f := range []workerproto.WorkerFrame{&workerproto.Done{}, &workerproto.Partial{}} {
		l := &loop{}
		Deliver(l.order, 7, "w", slices.Repeat([]workerproto.WorkerFrame{f}, 2*ReportPortion+1), nil, false)
		var sizes []int
		for _, ev := range l.got {
			switch ev := ev.(type) {
			case actor.Released:
				sizes = append(sizes, len(ev.Results))
			case actor.Reported:
				sizes = append(sizes, len(ev.Reports))
			}
		}
		require.Equal(t, []int{ReportPortion, ReportPortion, 1}, sizes)
	}
}

func TestManyJobsAreCancelledInPortions(t *testing.T) {
	jobs := make([]dispatcherd.JobID, Portion+1)
	jobs[Portion] = 7
	require.Empty(t, Cancels(nil))
	require.Equal(t, []actor.Event{actor.CancelRequested{Jobs: jobs[:Portion]}, actor.CancelRequested{Jobs: jobs[Portion:]}}, Cancels(jobs))
}
