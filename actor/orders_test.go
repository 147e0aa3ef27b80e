package actor

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// newBusySender returns a sender with running rows, whose core executes one order in
// each step.
func newBusySender(t *testing.T, rows int) *sender {
	s := newSender(t)
	for n := rows; n > 0; n -= 8 {
		for _, claim := range s.insert(min(n, 8)) {
			s.won(claim)
		}
	}
	require.Equal(t, rows, s.count(stateRunning))
	s.core.cfg.Limits.StepWork = jobWork
	return s
}

func (s *sender) count(state jobState) (n int) {
	for _, j := range s.core.orders.jobs {
		if j.state == state {
			n++
		}
	}
	return n
}

// finishOrders makes the steps that the core asks for at once, and returns their number.
func (s *sender) finishOrders() (steps int) {
	for ; s.core.orders.left > 0; steps++ {
		require.LessOrEqual(s.t, s.core.NextWake(), s.now+1)
		s.step(Tick{})
	}
	return steps
}

func TestInterruptedJobsAreReleasedInPortions(t *testing.T) {
	s := newBusySender(t, 16)
	s.step(Drained{})
	s.finishOrders()
	s.step(Interrupted{})
	require.Equal(t, 15, s.count(stateRunning))
	s.end(1)
	require.True(t, slices.ContainsFunc(s.core.Decisions(), func(d Decision) bool {
		return d.Kind == DecisionEnded && d.Job == 1 && d.Outcome == contract.Succeeded
	}), "a job that ends before its turn is done")
	require.Equal(t, 14, s.finishOrders())
	require.Zero(t, s.count(stateRunning))
}

func TestEndOfASessionIsNoCrashAfterInterrupted(t *testing.T) {
	s := newBusySender(t, 16)
	s.step(Drained{})
	s.step(Interrupted{})
	s.step(Unregistered{Session: 1})
	for s.core.hasWorkLeft() {
		s.step(Tick{})
	}
	require.Zero(t, s.core.stats.Crashed)
	require.Zero(t, s.count(stateRunning))
	require.Equal(t, 16, s.count(stateRecording))
}

func TestJobThatStartsAfterDisownedIsNotRevoked(t *testing.T) {
	s := newBusySender(t, 15)
	s.step(Disowned{})
	require.Equal(t, 14, s.count(stateRunning))
	fetch := one[*effect.Fetch](t, s.step(Owned{})).Request
	s.step(Fetched{Request: fetch, Result: contract.FetchResult{DBNow: 1_000_000}})
	for _, claim := range s.insert(1) {
		s.won(claim)
	}
	require.NotZero(t, s.finishOrders())
	require.Equal(t, 15, s.count(stateRevoked))
	require.Equal(t, stateRunning, s.core.jobs[16].state)
}

func TestUndecidedSessionsAreTurnedAwayInPortions(t *testing.T) {
	s := newStepper(t, 3*jobWork)
	for id := range dispatcherd.SessionID(10) {
		s.step(Registered{Session: id + 1, Worker: "w", Fingerprint: 1 << 16, Offers: []ResumeOffer{{
			Job: dispatcherd.JobID(id + 1), Attempt: 1, From: 2 << 16, Slot: dispatcherd.Slot{ID: dispatcherd.SlotID(id + 1), Types: []string{"a"}},
		}}})
	}
	s.core.renew(&offered{ResumeOffer: ResumeOffer{Job: 77, Attempt: 1}, renews: 3 << 16})
	s.step(Drained{})
	turned := len(only[*effect.TurnAway](s.fx))
	require.Equal(t, 3, turned)
	require.Len(t, s.core.adopts.next, 1, "the update of a fingerprint")
	require.Len(t, s.core.adopts.byJob, 2, "the offer in flight and the update")
	for s.core.hasWorkLeft() {
		s.step(Tick{})
		turned += len(only[*effect.TurnAway](s.fx))
	}
	require.Equal(t, 10, turned)
	require.Empty(t, s.core.sessions)
}

func TestWaitingRequestsAreRejectedInPortions(t *testing.T) {
	s := newStepper(t, jobWork)
	for i := range 20 {
		s.request(dispatcherd.JobID(i+1), 0)
	}
	s.step(Drained{})
	require.Equal(t, 19, s.core.quotas.Requests.Held())
	answers := len(only[*effect.Answer](s.fx))
	s.step(Abandoned{Job: -18}) // its turn would be next
	answers += len(only[*effect.Answer](s.fx))
	for s.core.hasWorkLeft() {
		s.step(Tick{})
		answers += len(only[*effect.Answer](s.fx))
	}
	require.Equal(t, 19, answers)
	require.True(t, s.core.Idle())
}
