package actor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// stateSetups are the commands that bring a job into each state. The job is the
// row "letter" or the request "call".
var stateSetups = map[jobState]string{
	stateWaiting:    "request call type=pdf wait=yes",
	stateServing:    "register worker=ann types=(pdf); request call type=pdf",
	stateParted:     "register worker=ann types=(pdf) remote=yes; request call type=pdf; kill ann",
	stateAbandoned:  "register worker=ann types=(pdf); request call type=pdf; abandon call",
	stateReserved:   "register worker=ann types=(pdf) slots=2; hold claim; insert first; run; insert letter; run",
	stateClaiming:   "register worker=ann types=(pdf); hold claim; insert letter; run",
	stateSlotless:   "register worker=ann types=(pdf); hold claim; insert letter; run; kill ann",
	statePreempted:  "register worker=ann types=(pdf); hold claim; insert letter; run; request other type=pdf",
	stateUnresolved: "register worker=ann types=(pdf); hold claim; insert letter; run; answer claim unknown",
	stateUnassigned: "register worker=ann types=(pdf); hold claim; insert letter; run; request other type=pdf; win",
	stateRunning:    "register worker=ann types=(pdf); insert letter; run",
	stateRevoked:    "register worker=ann types=(pdf); insert letter; run; disown",
	stateStopping:   "register worker=ann types=(pdf); insert letter; run; cancel letter",
	stateDetached:   "config slots=2; register worker=ann types=(pdf); insert letter; run; register worker=ann types=(pdf) slots=9",
	stateDetachedStopping: "config slots=2; register worker=ann types=(pdf); insert letter; run; register worker=ann " +
		"types=(pdf) slots=9; cancel letter",
	stateRecording: "register worker=ann types=(pdf); insert letter; run; hold finish; done letter",
}

// expectedTransitions lists every possible cell: state, event, next state and
// effects. "frees" means that the job's slot is free afterwards. All other
// cells are impossible.
const expectedTransitions = `
waiting           start      serving           send
waiting           answer     not in hand
serving           requeue    waiting           frees
serving           answer     not in hand       frees
serving           stop       abandoned         cancel
serving           detach     parted
serving           resume     serving
parted            requeue    waiting
parted            answer     not in hand
parted            resume     serving
abandoned         answer     not in hand       frees
abandoned         resume     abandoned         cancel
reserved          claim      claiming
reserved          give up    not in hand       frees
reserved          stop       reserved
claiming          slot lost  slotless
claiming          preempt    preempted
claiming          give up    not in hand       frees
claiming          unknown    unresolved        frees
claiming          win        running           send
claiming          unwanted   recording         frees
claiming          stop       claiming
slotless          give up    not in hand
slotless          unknown    unresolved
slotless          win        recording
slotless          unwanted   recording
slotless          stop       slotless
preempted         give up    not in hand
preempted         unknown    unresolved
preempted         win        unassigned
preempted         unwanted   recording
preempted         stop       preempted
unresolved        give up    not in hand
unresolved        unknown    unresolved
unresolved        win        unassigned
unresolved        unwanted   recording
unresolved        stop       unresolved
unassigned        assign     running           send
unassigned        unwanted   recording
unassigned        stop       unassigned
running           stop       stopping          cancel
running           revoke     revoked           cancel
running           detach     detached
running           resume     running
running           finish     recording         frees
running           leave      not in hand
revoked           stop       stopping          cancel
revoked           finish     recording         frees
stopping          stop       stopping          cancel
stopping          revoke     stopping          cancel
stopping          detach     detached stopping
stopping          resume     stopping          cancel
stopping          finish     recording         frees
stopping          leave      not in hand
detached          stop       detached stopping
detached          revoke     detached stopping
detached          resume     running
detached          finish     recording
detached          leave      not in hand
detached stopping stop       detached stopping
detached stopping revoke     detached stopping
detached stopping resume     stopping          cancel
detached stopping finish     recording
detached stopping leave      not in hand
recording         stop       recording
recording         recorded   not in hand
not in hand       enqueue    waiting
not in hand       reserve    reserved
not in hand       adopt      running
`

// inState returns a core with a job in a state.
func inState(t *testing.T, s jobState) (*world, *job) {
	w := newWorld(t)
	c := w.at.core
	for command := range strings.SplitSeq(stateSetups[s], "; ") {
		switch name, rest, _ := strings.Cut(command, " "); {
		case command == "":
		case name == "insert":
			w.command("insert", []string{rest + " type=pdf"})
		case command == "preempt":
			c.preempt(c.jobs[w.jobs["letter"]])
		case command == "win":
			request := w.at.pending[0].(*effect.Claim).Request
			answer := Claimed{Request: request, Result: w.table.claim(w.at.id, request)}
			c.Step(w.now, Together{Events: []Event{answer}, Hold: true}, nil)
		default:
			w.command(command, nil)
		}
		c = w.at.core
	}
	if s == stateNotInHand {
		j := c.newJob()
		j.Type = c.hold("pdf", "")
		return w, j
	}
	id, isRow := w.jobs["letter"]
	if !isRow {
		id = w.jobs["call"]
	}
	j := c.jobs[id]
	require.NotNil(t, j)
	require.Equal(t, s, j.state)
	return w, j
}

// moved makes one transition and describes its result.
func moved(t *testing.T, s jobState, ev jobEvent) (line string, possible bool) {
	w, j := inState(t, s)
	c := w.at.core
	if ev == onStart || ev == onAssign {
		ref := c.addTaken(&session{id: 99}, dispatcherd.Slot{ID: 77, Number: 7, Types: []string{"pdf"}})
		c.assign(j, ref)
	}
	slot, id := j.slot, j.id
	c.fx = nil
	c.sends = nil
	defer func() {
		if problem := recover(); problem != nil {
			require.Contains(t, problem, "impossible transition")
			require.Equal(t, s, j.state, "an impossible transition changes nothing")
			line, possible = "", false
		}
	}()
	c.move(j, ev)
	next, names := j.state, []string{}
	if c.jobs[id] == nil && s != stateNotInHand {
		next = stateNotInHand
	}
	for _, e := range c.fx {
		names = append(names, nameOf(e))
	}
	if slot != noSlot && c.index.IsFree(slot) {
		names = append(names, "frees")
	}
	return fmt.Sprintf("%-17v %-10v %-17v %s", s, ev, next, strings.Join(names, " ")), true
}

func TestEveryCellOfTheStateMachine(t *testing.T) {
	expected := map[string]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(expectedTransitions), "\n") {
		expected[strings.TrimRight(line, " ")] = true
	}
	cells := 0
	for s := stateNotInHand; s < stateCount; s++ {
		for ev := range eventCount {
			line, possible := moved(t, s, ev)
			line = strings.TrimRight(line, " ")
			if !possible {
				continue
			}
			cells++
			require.True(t, expected[line], "not expected: %s", line)
		}
	}
	require.Equal(t, len(expected), cells)
}

// In a daemon an impossible transition changes nothing. It is reported, and the
// dispatcher can still drain, interrupt what runs, and end its sessions.
func TestImpossibleTransitionIsReportedAndTheDispatcherDrains(t *testing.T) {
	for s := stateNotInHand; s < stateCount; s++ {
		for ev := range eventCount {
			if next := transitions[s][ev].next; next != 0 {
				continue
			}
			w, j := inState(t, s)
			c := w.at.core
			c.cfg.DrainOnViolation = true
			c.fx = nil
			c.move(j, ev)
			require.Equal(t, s, j.state)
			require.Len(t, c.fx, 1)
			require.ErrorContains(t, c.fx[0].(*effect.Violation).Err, ev.String())
			require.EqualValues(t, 1, c.Stats().Violations)
			sessions := c.sessionIDs()
			for _, end := range []Event{Drained{}, Interrupted{}} {
				c.Step(c.now, end, nil)
			}
			for _, id := range sessions {
				c.Step(c.now, Unregistered{Session: id}, nil)
			}
			require.Zero(t, c.index.Len())
			require.EqualValues(t, 1, c.Stats().Violations)
		}
	}
}
