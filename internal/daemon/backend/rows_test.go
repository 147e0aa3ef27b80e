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

// starts is a caller that records where its job was started.
type starts struct{ workers []string }

func (s *starts) Started(_ dispatcherd.SlotID, worker string) { s.workers = append(s.workers, worker) }
func (*starts) Reported(ondemand.Event)                       {}
func (*starts) Answered(ondemand.Answer)                      {}

// The job of a durable request may be sent before its id is known. Then the loop is asked for its start, and may report it as well.
func TestEachStartIsReportedOnce(t *testing.T) {
	r := NewRows(nil, time.Second, func(dispatcherd.SessionID) string { return "w3" }, func(contract.Topics) {})
	send := func(attempt dispatcherd.Attempt) {
		r.Sent(&effect.Send{Job: 8, Attempt: attempt, Slot: 23, Session: 3})
	}
	send(1)
	var c starts
	r.watch(8, &c, true, false)
	r.started(8, 0, 0, "")
	require.Empty(t, c.workers, "the loop does not run it")
	r.started(8, 23, 1, "w3")
	require.Equal(t, "w3", r.watched[8].worker, "the answer names the worker")
	send(1)
	send(2) // the first worker died
	r.started(8, 23, 2, "w3")
	require.Equal(t, []string{"w3", "w3"}, c.workers)
}
