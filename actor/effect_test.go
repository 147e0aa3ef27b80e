package actor

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

func TestAnswersHaveNames(t *testing.T) {
	require.Equal(t, "unsupported", effect.AnswerUnsupported.String())
	require.Equal(t, "stopping", effect.AnswerStopping.String())
}

// is reports whether an effect has type T.
func is[E effect.Effect](e effect.Effect) bool {
	_, ok := e.(E)
	return ok
}

// only returns the effects of one type.
func only[E effect.Effect](fx []effect.Effect) (found []E) {
	for _, e := range fx {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// one returns the only effect of a type.
func one[E effect.Effect](t *testing.T, fx []effect.Effect) E {
	found := only[E](fx)
	require.Len(t, found, 1, "%T of %v", found, fx)
	return found[0]
}

// kept copies effects, because the core reuses their memory in the next step.
func kept(fx []effect.Effect) []effect.Effect {
	for i, e := range fx {
		fx[i] = keptOne(e)
	}
	return fx
}

func keptOne[E effect.Effect](e E) E {
	v := reflect.New(reflect.TypeOf(e).Elem())
	v.Elem().Set(reflect.ValueOf(e).Elem())
	return v.Interface().(E)
}

// nameOf is the name of an effect in scenario files: set-gate for *SetGate.
func nameOf(e effect.Effect) string {
	if f, ok := e.(*effect.Fetch); ok && f.Request.Backfill {
		return "backfill"
	}
	return kebab(reflect.TypeOf(e).Elem().Name())
}

func kebab(camel string) string {
	var b strings.Builder
	for i, r := range camel {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// twoSlotCore is a core with one slot for pdf and one for pdf and excel.
func twoSlotCore() *Core {
	c := New(DefaultConfig())
	c.Step(1000, Registered{Session: 7, Worker: "ann", Slots: []dispatcherd.Slot{
		{ID: 21, Number: 3, Types: []string{"pdf"}}, {ID: 22, Number: 4, Types: []string{"excel", "pdf"}},
	}}, nil)
	return c
}

func TestSendNamesJobSlotAndScore(t *testing.T) {
	c := twoSlotCore()
	c.Step(1000, Requested{Job: -1, Type: "pdf"}, nil)
	c.Step(1000, Requested{Job: -2, Type: "pdf"}, nil)
	c.Step(1000, Requested{Job: -3, Type: "pdf", Priority: 2, Payload: []byte(`{"n":1}`), Deadline: time.Minute}, nil)
	fx := c.Step(3500, Released{Session: 7, Results: []Result{{Job: -2, Attempt: 1, OK: true, Value: []byte("42")}}}, nil)
	send := one[*effect.Send](t, fx)
	require.Equal(t, dispatcherd.SessionID(7), send.Session)
	require.Equal(t, dispatcherd.SlotID(22), send.Slot)
	require.Equal(t, int32(4), send.Number)
	require.Equal(t, dispatcherd.JobID(-3), send.Job)
	require.Equal(t, dispatcherd.Attempt(1), send.Attempt)
	require.Equal(t, dispatcherd.OnDemand, send.Mode)
	require.Equal(t, "pdf", send.Type)
	require.JSONEq(t, `{"n":1}`, string(send.Payload))
	require.Equal(t, 2500*time.Millisecond, send.Age)
	require.Equal(t, scoring.Terms{Base: 2_048_000, Age: 40_000, Rarity: 250_000, OnDemand: 4_176_000}, send.Terms)
	require.Equal(t, timing.Instant(3500), send.PlacedAt)
	started := one[*effect.Started](t, fx)
	require.Equal(t, send.Job, started.Job)
	require.Equal(t, send.Slot, started.Slot)
	require.Equal(t, "ann", started.Worker)
	answer := one[*effect.Answer](t, fx)
	require.Equal(t, dispatcherd.JobID(-2), answer.Job)
	require.Equal(t, effect.AnswerDone, answer.Kind)
	require.Equal(t, "42", string(answer.Result))
}

func TestSendOfARowContainsTimeoutAndPayload(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=ann types=(pdf)", nil)
	w.command("hold claim", nil)
	w.command("insert", []string{"letter type=pdf timeout=30s tries=4 age=2s"})
	w.command("run", nil)
	claim := w.at.pending[0].(*effect.Claim).Request
	require.NotZero(t, claim.Token)
	fx := w.at.core.Step(w.now, Claimed{Request: claim, Result: contract.ClaimResult{Won: []contract.Won{
		{
			ID: 1, Type: "pdf", Attempt: 3, MaxAttempts: 4, Failures: 2, Timeout: 30 * time.Second,
			Delivery: contract.Delivery{Payload: []byte(`"x"`)},
		},
	}}}, nil)
	send := one[*effect.Send](t, fx)
	require.Equal(t, 30*time.Second, send.Timeout)
	require.Equal(t, dispatcherd.Attempt(3), send.Attempt)
	require.Equal(t, dispatcherd.Queued, send.Mode)
	require.Equal(t, `"x"`, string(send.Payload))
	require.Equal(t, 2*time.Second, send.Age)
	require.Equal(t, w.now+30_000, w.at.core.firstAlarm())
	fx = w.at.core.Step(w.now, Released{Session: 1, Results: []Result{{Job: 1, Attempt: 3, Error: "no"}}}, nil)
	retry := one[*effect.Finish](t, fx).Request.Items[0]
	require.Equal(t, contract.Retry, retry.Outcome)
	require.GreaterOrEqual(t, retry.Delay, 2*time.Second, "the third repetition waits 2 to 4 seconds")
	require.LessOrEqual(t, retry.Delay, 4*time.Second)
}

func TestRowWithAnUnfitPayloadFails(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=ann types=(pdf)", nil)
	w.command("hold claim", nil)
	w.command("insert", []string{"letter type=pdf tries=4"})
	w.command("run", nil)
	claim := w.at.pending[0].(*effect.Claim).Request
	fx := w.at.core.Step(w.now, Claimed{Request: claim, Result: contract.ClaimResult{Won: []contract.Won{
		{ID: 1, Type: "pdf", Attempt: 3, MaxAttempts: 4, Unfit: "too deep"},
	}}}, nil)
	require.Equal(t, []contract.Finish{{ID: 1, Attempt: 3, Outcome: contract.FailedFinal, Error: "too deep"}},
		one[*effect.Finish](t, fx).Request.Items)
	require.Empty(t, only[*effect.Send](fx))
}

// The time until the deadline counts from the time at which the claim was sent.
func TestDurableRequestDoesNotStartAfterItsDeadline(t *testing.T) {
	for left, late := range map[time.Duration]bool{
		-time.Nanosecond: true, 100 * time.Millisecond: true, 101 * time.Millisecond: false, 0: false,
	} {
		w := newWorld(t)
		w.command("register worker=ann types=(pdf)", nil)
		w.command("hold claim", nil)
		w.command("insert", []string{"letter type=pdf"})
		w.command("run", nil)
		claim := w.at.pending[0].(*effect.Claim).Request
		fx := w.at.core.Step(w.now.After(100*time.Millisecond), Claimed{Request: claim, Result: contract.ClaimResult{Won: []contract.Won{
			{ID: 1, Type: "pdf", Attempt: 1, MaxAttempts: 4, Left: left},
		}}}, nil)
		if !late {
			one[*effect.Send](t, fx)
			continue
		}
		require.Equal(t, []contract.Finish{{ID: 1, Attempt: 1, Outcome: contract.Cancelled, Error: contract.DeadlinePassed}},
			one[*effect.Finish](t, fx).Request.Items)
		require.Empty(t, only[*effect.Send](fx))
	}
}

// A row that was won without a request must not remain running under this
// dispatcher.
func TestWonRowThatWasNotRequestedIsReleased(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=ann types=(pdf)", nil)
	w.command("hold claim", nil)
	w.command("insert", []string{"letter type=pdf"})
	w.command("run", nil)
	claim := w.at.pending[0].(*effect.Claim).Request
	fx := w.at.core.Step(w.now, Claimed{Request: claim, Result: contract.ClaimResult{Won: []contract.Won{
		{ID: 1, Type: "pdf", Attempt: 1, MaxAttempts: 1}, {ID: 99, Attempt: 6, MaxAttempts: 1},
	}}}, nil)
	one[*effect.Send](t, fx)
	require.Equal(t, []contract.Finish{{ID: 99, Attempt: 6, Outcome: contract.Released}}, one[*effect.Finish](t, fx).Request.Items)
	require.Empty(t, w.at.core.Step(w.now, Claimed{Request: claim}, nil), "a second answer to the same request")
	require.Len(t, w.at.core.claims.spare, 1, "the memory of a request is reused only once")
}

func TestClaimListsRowsInOrder(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=ann types=(zip)(pdf)(csv)", nil)
	w.command("hold claim", nil)
	w.command("insert", []string{"a type=pdf prio=1", "b type=csv prio=2", "c type=zip prio=3"})
	w.command("run", nil)
	claim := w.at.pending[0].(*effect.Claim).Request
	require.Equal(t, []dispatcherd.JobID{1, 2, 3}, claim.IDs)
}

// A finish is marked as a repetition only if its previous answer was lost.
func TestOnlyFinishWithLostAnswerIsARepetition(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=ann types=(pdf) slots=2", nil)
	w.command("insert", []string{"a type=pdf", "b type=pdf"})
	w.command("run", nil)
	w.command("hold finish", nil)
	w.command("done a", nil)
	require.False(t, w.at.pending[0].(*effect.Finish).Request.Again)
	w.command("answer finish refused", nil)
	w.command("advance 100ms", nil)
	require.False(t, w.at.pending[0].(*effect.Finish).Request.Again, "the first finish was not executed")
	w.command("lose finish", nil)
	w.command("advance 100ms", nil)
	require.True(t, w.at.pending[0].(*effect.Finish).Request.Again)
	w.command("answer finish refused", nil)
	w.command("advance 1s", nil)
	require.True(t, w.at.pending[0].(*effect.Finish).Request.Again, "the first finish may have been executed")
	w.command("answer finish", nil)
	w.command("done b", nil)
	require.False(t, w.at.pending[0].(*effect.Finish).Request.Again)
}

func TestReportsOfCurrentAttemptsAreForwarded(t *testing.T) {
	c := twoSlotCore()
	c.Step(1000, Requested{Job: -1, Type: "pdf"}, nil)
	c.Step(1000, Registered{Session: 8, Worker: "bob"}, nil)
	say := func(s dispatcherd.SessionID, r contract.Report) effect.Effect {
		fx := c.Step(1000, Reported{Session: s, Reports: []contract.Report{r}}, nil)
		require.Len(t, fx, 1)
		return fx[0]
	}
	for _, r := range []contract.Report{
		{Job: -1, Attempt: 1, JSON: []byte("0.5")}, {Job: -1, Attempt: 1, Partial: true, JSON: []byte(`"line"`)},
	} {
		require.Equal(t, &effect.Report{Report: r, Mode: dispatcherd.OnDemand}, say(7, r))
	}
	require.Empty(t,
		c.Step(1000, Reported{Session: 7, Reports: []contract.Report{{Job: -1, Attempt: 1, Log: "info: x\n"}}}, nil),
		"the log of a request is not kept")
	require.Equal(t, &effect.Stale{Session: 7, Job: -1, Attempt: 2}, say(7, contract.Report{Job: -1, Attempt: 2, Log: "info: x\n"}))
	require.Equal(t, &effect.NotHeld{Session: 8, Job: -1, Attempt: 1}, say(8, contract.Report{Job: -1, Attempt: 1}))
	require.Equal(t, &effect.Stale{Session: 7, Job: -1, Attempt: 2}, say(7, contract.Report{Job: -1, Attempt: 2}))
	require.Equal(t, &effect.Stale{Session: 7, Job: -5, Attempt: 1}, say(7, contract.Report{Job: -5, Attempt: 1}))
}

func TestExpiredCapacityWaitIsAnsweredUnsupported(t *testing.T) {
	c := twoSlotCore()
	c.Step(1000, Requested{Job: -1, Type: "ocr", Wait: true, CapacityWait: time.Second}, nil)
	c.Step(1000, Requested{Job: -2, Type: "pdf", Wait: true, CapacityWait: time.Second}, nil)
	require.Empty(t, c.Step(1999, Tick{}, nil))
	answer := one[*effect.Answer](t, c.Step(2000, Tick{}, nil))
	require.Equal(t, dispatcherd.JobID(-1), answer.Job, "the other one runs")
	require.Equal(t, effect.AnswerUnsupported, answer.Kind)
	require.Equal(t, `no slot supports type "ocr", and none came in time`, answer.Reason)
	require.False(t, c.Idle())
	c.Step(1000, Released{Session: 7, Results: []Result{{Job: -2, Attempt: 1, OK: true}}}, nil)
	require.True(t, c.Idle())
}

func TestJobReportedTwiceInOneEventIsReleasedOnce(t *testing.T) {
	c := twoSlotCore()
	c.Step(1000, Requested{Job: -1, Type: "pdf"}, nil)
	r := Result{Job: -1, Attempt: 1, OK: true}
	fx := c.Step(1000, Released{Session: 7, Results: []Result{r, r}}, nil)
	one[*effect.Answer](t, fx)
	one[*effect.Stale](t, fx)
	require.NoError(t, c.Check())
}

func TestRequestThatIsReturnedTooOftenFails(t *testing.T) {
	c := twoSlotCore()
	fx := c.Step(1000, Requested{Job: -1, Type: "pdf", Deadline: time.Minute}, nil)
	for range DefaultConfig().Limits.Crashes {
		send := one[*effect.Send](t, fx)
		fx = c.Step(1000, Released{Session: 7, Results: []Result{{Job: -1, Attempt: send.Attempt, Returned: true}}}, nil)
		require.Equal(t, timing.Instant(61_000), c.firstAlarm(), "its deadline stays")
	}
	send := one[*effect.Send](t, fx)
	fx = c.Step(1000, Released{Session: 7, Results: []Result{{Job: -1, Attempt: send.Attempt, Returned: true}}}, nil)
	require.Equal(t, effect.AnswerFailed, one[*effect.Answer](t, fx).Kind)
	require.True(t, c.Idle())
}

func TestDrainingCoreAnswersReturnedRequests(t *testing.T) {
	c := twoSlotCore()
	c.Step(1000, Requested{Job: -1, Type: "pdf"}, nil)
	c.Step(1000, Requested{Job: -2, Type: "pdf"}, nil)
	c.Step(1000, Drained{}, nil)
	fx := c.Step(1000, Released{Session: 7, Results: []Result{{Job: -1, Attempt: 1, Returned: true}}}, nil)
	require.Equal(t, effect.AnswerStopping, one[*effect.Answer](t, fx).Kind)
	fx = c.Step(1000, Unregistered{Session: 7}, nil)
	require.Equal(t, effect.AnswerStopping, one[*effect.Answer](t, fx).Kind)
	require.True(t, c.Idle())
}

// The capacity in the rarity term includes the slots of other dispatchers.
func TestSlotsOfOtherDispatchersReduceRarity(t *testing.T) {
	c := twoSlotCore()
	c.Step(1000, ClusterCapacity{Capacity: map[string]int{"pdf": 3, "ocr": 9}}, nil)
	send := one[*effect.Send](t, c.Step(1000, Requested{Job: -1, Type: "pdf"}, nil))
	require.Equal(t, scoring.Milli(100_000), send.Terms.Rarity, "500 over 2 local slots and 3 others")
	c.Step(1000, Registered{Session: 9, Worker: "eve", Slots: []dispatcherd.Slot{{ID: 30, Types: []string{"ocr"}}}}, nil)
	send = one[*effect.Send](t, c.Step(1000, Requested{Job: -2, Type: "ocr"}, nil))
	require.Equal(t, scoring.Milli(50_000), send.Terms.Rarity, "a type that was not known here when the others were counted")
	c.Step(1000, ClusterCapacity{}, nil)
	send = one[*effect.Send](t, c.Step(1000, Requested{Job: -3, Type: "pdf"}, nil))
	require.Equal(t, scoring.Milli(250_000), send.Terms.Rarity)
}

// Events of one step are decided together: the job with the higher score goes
// first although it arrived last. With Hold the core makes no decision before
// the next step.
func TestEventsOfOneStepAreDecidedTogether(t *testing.T) {
	c := twoSlotCore()
	both := []Event{
		Requested{Job: -1, Type: "excel", Priority: 1},
		Requested{Job: -2, Type: "excel", Priority: 9},
	}
	require.Empty(t, c.Step(1000, Together{Events: both, Hold: true}, nil))
	require.Equal(t, dispatcherd.JobID(-2), one[*effect.Send](t, c.Step(1000, Tick{}, nil)).Job)
}

func TestListsAndGaugesShowTheState(t *testing.T) {
	c := smallCore(t)
	c.Step(5001, Tick{}, nil) // all deadlines have passed
	c.Step(5001, Requested{Job: -4, Type: "excel"}, nil)
	c.Step(5001, Requested{Job: -5, Type: "excel"}, nil)
	c.Step(7001, Withdrew{Session: 1, Numbers: []int32{2}}, nil)
	require.Equal(t, []contract.Slot{
		{
			Slot:     1,
			Session:  1,
			Worker:   "w",
			Number:   0,
			Types:    []string{"pdf"},
			State:    "busy",
			Job:      -1,
			JobType:  "pdf",
			Attempt:  1,
			Busy:     7,
			Left:     8,
			Stopping: "timeout",
		},
		{
			Slot:     2,
			Session:  1,
			Worker:   "w",
			Number:   1,
			Types:    []string{"pdf"},
			State:    "busy",
			Job:      -2,
			JobType:  "pdf",
			Attempt:  1,
			Busy:     7,
			Left:     8,
			Stopping: "timeout",
		},
		{
			Slot:     3,
			Session:  1,
			Worker:   "w",
			Number:   2,
			Types:    []string{"excel"},
			State:    "busy",
			Draining: true,
			Job:      -4,
			JobType:  "excel",
			Attempt:  1,
			Busy:     2,
		},
	}, c.Slots())
	require.ElementsMatch(t, []contract.Type{
		{Type: "pdf", Capacity: 2, Known: 2, Oldest: 7.001},
		{Type: "excel", Requests: 1, Oldest: 2},
	}, c.Types())
	g := c.Gauges()
	require.Equal(t,
		Gauges{
			Slots:     3,
			SlotTypes: 3,
			Sessions:  1,
			Types:     2,
			Requests:  1,
			Cached:    2,
			InHand:    4,
			Largest: map[string]int{
				"slots": 3, "slot_types": 3, "types": 2, "requests_waiting": 1, "spawns": 0, "job_log_bytes": 0, "resume_offers": 0,
			},
		},
		g,
	)
	free := twoSlotCore().Gauges()
	require.Equal(t, 2, free.Free)
}

// A stopping dispatcher does not release rows that it may have adopted. The
// renewal of a session fingerprint is not an adoption.
func TestRenewedSessionFingerprintIsNotAnAdoption(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=ann types=(pdf)", nil)
	w.command("hold claim", nil)
	w.command("hold adopt", nil)
	w.command("insert", []string{"letter type=pdf", "memo type=excel"})
	w.command("run", nil)
	w.command("request call type=pdf", nil)
	w.command("register worker=bob types=(pdf)", nil)
	w.command("answer claim", nil)
	require.Len(t, w.at.pending, 1, "the renewal of the fingerprint")
	require.False(t, w.at.core.Idle())
	require.False(t, w.at.core.Adopting())
	w.command("offer memo worker=cat types=(zip)", nil)
	require.True(t, w.at.core.Adopting())
}

// The effects of one step stay valid while their memory grows. Afterwards it keeps no payload.
func TestMemoryOfSendsIsReused(t *testing.T) {
	const jobs = 100
	c := New(DefaultConfig())
	slots, requests := Registered{Session: 1, Worker: "w"}, Together{}
	for n := range jobs {
		slots.Slots = append(slots.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(n + 1), Number: int32(n), Types: []string{"pdf"}})
		requests.Events = append(requests.Events, Requested{Job: dispatcherd.JobID(-1 - n), Type: "pdf", Payload: []byte{byte(n)}})
	}
	c.Step(1, slots, nil)
	sends := only[*effect.Send](c.Step(2, requests, nil))
	require.Len(t, sends, jobs)
	for _, e := range sends {
		require.Equal(t, []byte{byte(-1 - e.Job)}, e.Payload)
	}
	c.Step(3, Tick{}, nil)
	require.Nil(t, sends[jobs-1].Payload)
	require.Empty(t, c.sends)
}
