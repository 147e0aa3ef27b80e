package actor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// Two jobs each crash their worker after one minute. They are retried after
// different delays, but later run at the same time again. In the end both are
// quarantined.
func TestJobsThatCrashTogetherAreQuarantinedInTheEnd(t *testing.T) {
	w := newWorld(t)
	w.command("insert", []string{"a type=pdf tries=25", "b type=pdf tries=25"})
	var out strings.Builder
	for death := 1; death <= 40 && strings.Count(out.String(), "quarantined:") < 2; death++ {
		worker := fmt.Sprintf("w%d", death)
		w.command("register worker="+worker+" types=(pdf) slots=2", nil)
		out.WriteString(w.command("advance 700s", nil))
		out.WriteString(w.command("kill "+worker, nil))
	}
	require.Equal(t, 2, strings.Count(out.String(), "quarantined:"), "%s", out.String())
}

// The caller was told that the request is late, so the decision log says the same.
func TestRequestWhoseWorkerDiesAfterItsDeadlineEndsAsLate(t *testing.T) {
	c := New(DefaultConfig())
	c.Step(0, Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{{ID: 7, Types: []string{"pdf"}}}}, nil)
	c.Step(10, Requested{Job: -1, Type: "pdf", Deadline: time.Second}, nil)
	require.Equal(t, effect.AnswerLate, one[*effect.Answer](t, c.Step(1010, Tick{}, nil)).Kind)
	require.Empty(t, decisionsOf(c, DecisionEnded), "the worker still runs it")
	require.Empty(t, c.Step(1020, Unregistered{Session: 1}, nil), "the caller has its answer")
	ended := decisionsOf(c, DecisionEnded)
	require.Len(t, ended, 1)
	require.Equal(t, effect.AnswerLate, ended[0].Answer)
}
