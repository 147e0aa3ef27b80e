package workerproto

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// welcomed returns the state after a hello with slots 0 and 1.
func welcomed(t *testing.T) *sessionState {
	m := &sessionState{nonce: "right", limits: Limits{MaxSlots: 4, MaxTypesPerSlot: 3, MaxSlotTypes: 6}.WithDefaults()}
	require.Nil(t, m.accept(&Hello{MinVersion: 1, MaxVersion: 1, Worker: "w", Slots: []Slot{{0, []string{"a"}}, {1, []string{"a"}}}}))
	require.Equal(t, open, m.phase)
	return m
}

func TestFirstFrameMustBeHello(t *testing.T) {
	for _, f := range everyWorkerFrame()[1:] {
		m := &sessionState{nonce: "right", limits: Limits{}.WithDefaults()}
		err := m.accept(f)
		require.Equal(t, NotHello, err.Code)
		require.True(t, err.Fatal)
	}
}

func TestHelloComesOnce(t *testing.T) {
	m := welcomed(t)
	err := m.accept(&Hello{MinVersion: 1, MaxVersion: 1, Worker: "w"})
	require.Equal(t, SecondHello, err.Code)
	require.True(t, err.Fatal)
}

func TestVersionsMustOverlap(t *testing.T) {
	for span, ok := range map[[2]int]bool{{1, 1}: true, {1, 99}: true, {2, 3}: false} {
		m := &sessionState{nonce: "right", limits: Limits{}.WithDefaults()}
		h := &Hello{MinVersion: span[0], MaxVersion: span[1], Worker: "w"}
		err := m.accept(h)
		require.Equal(t, ok, err == nil, span)
		if ok {
			require.Equal(t, 1, (&serverConn{}).welcome(h.MaxVersion, false).Version)
		} else {
			require.Equal(t, BadVersion, err.Code)
			require.Contains(t, err.Message, "2 to 3")
		}
	}
}

func TestInvalidSlotRejectsTheWholeFrame(t *testing.T) {
	a := []string{"a"}
	cases := map[string]struct {
		add  []Slot
		says string
	}{
		"no types":           {[]Slot{{2, a}, {3, nil}}, "slot 3 supports no types"},
		"number taken":       {[]Slot{{2, a}, {1, a}}, "slot number 1 is taken"},
		"number twice":       {[]Slot{{2, a}, {2, a}}, "slot number 2 is taken"},
		"too many slots":     {[]Slot{{2, a}, {3, a}, {4, a}}, "5 slots are more than the limit of 4"},
		"too many types":     {[]Slot{{2, []string{"a", "b", "c", "d"}}}, "supports 4 types, the limit is 3"},
		"too many in all":    {[]Slot{{2, []string{"a", "b"}}, {3, []string{"a", "b", "c"}}}, "would have 7 types in all, the limit is 6"},
		"a type twice":       {[]Slot{{2, []string{"a", "a"}}}, "names type \"a\" twice"},
		"an empty type":      {[]Slot{{2, []string{""}}}, "type is missing"},
		"a long type":        {[]Slot{{2, []string{strings.Repeat("x", dispatcherd.MaxTypeLength+1)}}}, "at most 128"},
		"a format in types":  {[]Slot{{2, []string{"payroll\u200b"}}}, "invisible character U+200B at byte 8"},
		"a control in types": {[]Slot{{2, []string{"a\n"}}}, "invisible character U+000A"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := welcomed(t)
			err := m.accept(&SlotAdd{Slots: c.add})
			require.NotNil(t, err)
			require.Equal(t, BadSlot, err.Code)
			require.False(t, err.Fatal)
			require.Contains(t, err.Message, c.says)
			require.Len(t, m.slots, 2)

			fresh := &sessionState{nonce: "right", limits: m.limits, peer: m.peer}
			err = fresh.accept(&Hello{MinVersion: 1, MaxVersion: 1, Worker: "w", Slots: append([]Slot{{0, a}, {1, a}}, c.add...)})
			require.NotNil(t, err)
			require.Equal(t, BadSlot, err.Code)
		})
	}
}

func TestRemovedNumberCanBeReusedAndUnknownNumberIsRejected(t *testing.T) {
	m := welcomed(t)
	for _, bad := range [][]int32{{7}, {0, 7}, {0, 0}} {
		err := m.accept(&SlotRemove{Slots: bad})
		require.Equal(t, UnknownSlot, err.Code)
		require.Len(t, m.slots, 2)
	}
	require.Nil(t, m.accept(&SlotRemove{Slots: []int32{0}}))
	require.Equal(t, 1, m.types)
	require.Nil(t, m.accept(&SlotAdd{Slots: []Slot{{0, []string{"b"}}}}))
}

func TestReportsNeedTheNonceOfTheSession(t *testing.T) {
	m := welcomed(t)
	for _, f := range everyWorkerFrame() {
		n, ok := f.(named)
		if !ok {
			continue
		}
		e := n.execution()
		e.Session = "wrong"
		err := m.accept(f)
		require.Equal(t, WrongSession, err.Code, "%T", f)
		require.Equal(t, e.Job, err.Job)
		require.False(t, err.Fatal)
		e.Session = "right"
		require.Nil(t, m.accept(f), "%T", f)
	}
}

func TestSlotOfAnOfferIsRegisteredOnlyIfItIsResumed(t *testing.T) {
	m := &sessionState{nonce: "right", limits: Limits{}.WithDefaults()}
	h := &Hello{MinVersion: 1, MaxVersion: 1, Worker: "w", Slots: []Slot{{0, []string{"a"}}},
		Running: []Running{{Execution: someExecution, Slot: Slot{1, []string{"a"}}}, {Execution: someExecution, Slot: Slot{2, []string{"a"}}}}}
	require.Nil(t, m.accept(h))
	m.add([]Slot{{1, []string{"a"}}})
	require.Equal(t, BadSlot, m.accept(&SlotAdd{Slots: []Slot{{1, []string{"a"}}}}).Code)
	require.Nil(t, m.accept(&SlotAdd{Slots: []Slot{{2, []string{"a"}}}}))
}

func TestAfterDrainNoSlotsAreAddedButReportsCount(t *testing.T) {
	m := welcomed(t)
	require.Nil(t, m.accept(&Drain{}))
	require.Equal(t, Draining, m.accept(&SlotAdd{Slots: []Slot{{2, []string{"a"}}}}).Code)
	require.Nil(t, m.accept(&Done{Execution: Execution{Job: 1, Attempt: 1, Session: "right"}}))
	require.Nil(t, m.accept(&Drain{}))
}

func TestTypeThatTheUserMayNotServeIsRejected(t *testing.T) {
	limits := Limits{Permit: func(p Peer, typ string) string {
		if typ == "secret" && p.UID != 7 {
			return "only for 7"
		}
		return ""
	}}.WithDefaults()
	hello := func() *Hello {
		return &Hello{MinVersion: 1, MaxVersion: 1, Worker: "w", Slots: []Slot{{0, []string{"a"}}}}
	}
	offers := map[string]func(*Hello){
		"slots":   func(h *Hello) { h.Slots = append(h.Slots, Slot{3, []string{"a", "secret"}}) },
		"running": func(h *Hello) { h.Running = []Running{{Slot: Slot{3, []string{"secret"}}}} },
	}
	for name, offer := range offers {
		m := &sessionState{nonce: "right", limits: limits, peer: Peer{UID: 8}}
		h := hello()
		offer(h)
		err := m.accept(h)
		require.Equal(t, &Error{Code: BadSlot, Message: "slot 3: only for 7"}, err, name)
		require.Nil(t, (&sessionState{nonce: "right", limits: limits, peer: Peer{UID: 7}}).accept(h), name)
	}
	m := &sessionState{nonce: "right", limits: limits, peer: Peer{UID: 8}}
	require.Nil(t, m.accept(hello()))
	err := m.accept(&SlotAdd{Slots: []Slot{{1, []string{"a"}}, {2, []string{"secret"}}}})
	require.Equal(t, &Error{Code: BadSlot, Message: "slot 2: only for 7"}, err, "the session continues")
	require.Nil(t, m.accept(&SlotAdd{Slots: []Slot{{1, []string{"a"}}}}), "no slot of the frame was added")
}
