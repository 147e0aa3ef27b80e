package actor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func decisionsOf(c *Core, kind DecisionKind) (list []Decision) {
	for _, d := range c.Decisions() {
		if d.Kind == kind {
			list = append(list, d)
		}
	}
	return list
}

func TestPlacementNamesScoreAndRunnerUp(t *testing.T) {
	c := New(DefaultConfig())
	c.Step(0, Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{{ID: 7, Types: []string{"pdf"}}}}, nil)
	c.Step(10, Requested{Job: -1, Type: "pdf"}, nil)
	placed := decisionsOf(c, DecisionPlaced)
	require.Len(t, placed, 1)
	require.EqualValues(t, -1, placed[0].Job)
	require.EqualValues(t, 7, placed[0].Slot)
	require.Equal(t, "w", placed[0].Worker)
	require.EqualValues(t, 500_000, placed[0].Terms.Rarity)
	require.Zero(t, placed[0].RunnerUp)
	require.Zero(t, placed[0].Reasons)
	require.EqualValues(t, 1, placed[0].Capacity)
	require.EqualValues(t, 1, placed[0].SlotTypes)

	c.Step(20, Requested{Job: -2, Type: "pdf"}, nil)
	waiting := decisionsOf(c, DecisionWaiting)
	require.Len(t, waiting, 1)
	require.EqualValues(t, -2, waiting[0].Job)
	require.Equal(t, []Reason{ReasonCapacityBusy}, waiting[0].Reasons.List())
	c.Step(30, Requested{Job: -3, Type: "pdf"}, nil)
	require.Empty(t, decisionsOf(c, DecisionWaiting), "the reason has not changed")

	c.Step(1020, Released{Session: 1, Results: []Result{{Job: -1, Attempt: 1, OK: true}}}, nil)
	ended := decisionsOf(c, DecisionEnded)
	require.Len(t, ended, 1)
	require.Equal(t, effect.AnswerDone, ended[0].Answer)
	require.Equal(t, 1010*time.Millisecond, ended[0].Ran)
	require.Zero(t, ended[0].Waited)
	placed = decisionsOf(c, DecisionPlaced)
	require.Len(t, placed, 1)
	require.EqualValues(t, -2, placed[0].Job)
	require.Equal(t, time.Second, placed[0].Waited)
	require.Equal(t, []Reason{ReasonCapacityBusy}, placed[0].Reasons.List())
	require.EqualValues(t, -3, placed[0].RunnerUp.Job)
	require.Equal(t, "pdf", placed[0].RunnerUp.Type)
	require.Positive(t, placed[0].RunnerUp.Score)
}

func TestWaitReasonsEndWhenTheTypeStopsWaiting(t *testing.T) {
	var w typeWaits
	require.Zero(t, w.since(-5), "the job never had to wait")
	w.last[waitBusy], w.held = 100, 1<<waitBusy
	require.Equal(t, []Reason{ReasonCapacityBusy}, w.since(100).List())
	require.Zero(t, w.since(101))
}

func TestDrainIsADecision(t *testing.T) {
	c := New(DefaultConfig())
	c.Step(0, Drained{}, nil)
	waiting := decisionsOf(c, DecisionWaiting)
	require.Len(t, waiting, 1)
	require.Equal(t, []Reason{ReasonDraining}, waiting[0].Reasons.List())
	c.Step(1, Tick{}, nil)
	require.Empty(t, c.Decisions())
}

func TestEndOfAnAttemptNamesItsOutcome(t *testing.T) {
	m := newSaturatedCore(10, 1, 1, 1)
	m.now++
	r := m.running[0]
	m.core.Step(m.now, Released{Results: []Result{{Job: r.jobs[r.at].Job, Attempt: 1, Permanent: true}}}, nil)
	ended := decisionsOf(m.core, DecisionEnded)
	require.Len(t, ended, 1)
	require.Equal(t, contract.FailedFinal, ended[0].Outcome)
	require.Zero(t, ended[0].Answer)
	require.NotZero(t, ended[0].Ran)
}

// A slot says how long its job has run, how long it may run, and why it is being stopped.
func TestRunOfAJobIsDescribed(t *testing.T) {
	cfg := DefaultConfig()
	c := New(cfg)
	c.Step(0, Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{{ID: 7, Types: []string{"pdf"}}}}, nil)
	c.Step(10, Requested{Job: -1, Type: "pdf", Deadline: 10 * time.Second}, nil)
	c.Step(1010, Tick{}, nil)
	var info contract.Slot
	c.describeRun(&info, c.jobs[-1])
	require.Equal(t, contract.Slot{Busy: 1, Left: 9}, info)
	c.Step(1020, Abandoned{Job: -1}, nil)
	c.describeRun(&info, c.jobs[-1])
	require.Equal(t, contract.Slot{Busy: 1.01, Left: cfg.CancelGrace.Seconds(), Stopping: "the caller hung up"}, info)
	require.Equal(t, info.Stopping, c.Explain(Inquiry{ID: -1}).Stopping)
	slot, attempt, worker := c.RunsOn(-1)
	require.Equal(t, []any{dispatcherd.SlotID(7), dispatcherd.Attempt(1), "w"}, []any{slot, attempt, worker})
	slot, _, _ = c.RunsOn(-2)
	require.Zero(t, slot)
}

// Before the first fetch, the age of a row follows from the clock with which it was read.
func TestAgeBeforeTheFirstFetch(t *testing.T) {
	c := New(DefaultConfig())
	const due = 1_700_000_000_000_000
	require.Equal(t, 5*time.Second, c.Explain(Inquiry{ID: 1, Type: "x", RunAt: due, Now: due + 5_000_000}).Age)
	early := c.Explain(Inquiry{ID: 1, Type: "x", RunAt: due, Now: due - 1_000_000})
	require.Contains(t, early.Reasons, ReasonScheduled)
	require.Less(t, early.Closes, early.Window+2*time.Second)
}
