package backend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// startedAt is a caller that records where its job runs.
type startedAt struct {
	slot   dispatcherd.SlotID
	worker string
}

func (s *startedAt) Started(slot dispatcherd.SlotID, worker string) { s.slot, s.worker = slot, worker }
func (*startedAt) Reported(ondemand.Report)                         {}
func (*startedAt) Answered(ondemand.Answer)                         {}

func TestAStartBeforeTheIDIsKnownIsReported(t *testing.T) {
	names := map[dispatcherd.SessionID]string{3: "w3", 4: "w4"}
	r := NewRows(nil, time.Second, func(s dispatcherd.SessionID) string { return names[s] }, func(contract.Topics) {})
	send := func(job dispatcherd.JobID, attempt dispatcherd.Attempt, session dispatcherd.SessionID) {
		r.Sent(&effect.Send{Job: job, Attempt: attempt, Slot: 20 + dispatcherd.SlotID(session), Session: session})
	}
	send(7, 1, 3)
	done := r.expect()
	send(8, 1, 3)
	send(8, 2, 4) // its first worker died
	var early, unexpected startedAt
	r.watch(7, &unexpected, true, false)
	require.Zero(t, unexpected, "no insertion was in flight")
	r.watch(8, &early, true, false)
	require.Equal(t, startedAt{24, "w4"}, early)
	require.Equal(t, "w4", r.watched[8].worker, "the answer names the worker")
	done()

	defer r.expect()()
	for job := range dispatcherd.JobID(2 * maxStarts) {
		send(100+job, 1, 3)
	}
	require.Len(t, r.starts.latest, maxStarts, "the recorded starts are bounded")
	var last, first startedAt
	r.watch(100+2*maxStarts-1, &last, true, false)
	require.Equal(t, startedAt{23, "w3"}, last)
	r.watch(100, &first, true, false)
	require.Zero(t, first)
}
