package actor

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// sender is a core with 16 free slots, batches of eight rows, and at most three claims in flight.
type sender struct {
	t    *testing.T
	core *Core
	now  timing.Instant
	last dispatcherd.JobID
}

func newSender(t *testing.T) *sender {
	cfg := DefaultConfig()
	cfg.Limits.ClaimBatch, cfg.Limits.FinishBatch, cfg.Limits.Claims = 8, 8, 3
	s := &sender{t: t, core: New(cfg), now: 1000}
	register := Registered{Session: 1}
	for i := range int32(16) {
		register.Slots = append(register.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(i + 1), Number: i, Types: []string{"pdf"}})
	}
	request := one[*effect.Fetch](t, s.step(register)).Request
	require.Empty(t, s.step(Fetched{Request: request}))
	return s
}

func (s *sender) step(ev Event) []effect.Effect {
	fx := s.core.Step(s.now, ev, nil)
	require.NoError(s.t, s.core.Check())
	return kept(fx)
}

// insert lets the core read n further rows and returns the claims that it sends.
func (s *sender) insert(n int) (sent []*contract.ClaimRequest) {
	s.now += 100
	fetch := one[*effect.Fetch](s.t, s.step(Notified{})).Request
	result := contract.FetchResult{DBNow: int64(s.now) * 1000}
	for i, lane := range fetch.Lanes {
		for ; lane.Priority == 0 && n > 0; n-- {
			s.last++
			result.Candidates = append(result.Candidates, contract.Candidate{Lane: i, Key: contract.Key{ID: s.last}})
		}
	}
	return claimsOf(s.step(Fetched{Request: fetch, Result: result}))
}

func claimsOf(fx []effect.Effect) (sent []*contract.ClaimRequest) {
	for _, e := range only[*effect.Claim](fx) {
		sent = append(sent, e.Request)
	}
	return sent
}

// won answers a claim that won all of its rows and returns the effects.
func (s *sender) won(r *contract.ClaimRequest) []effect.Effect {
	result := contract.ClaimResult{}
	for _, id := range r.IDs {
		result.Won = append(result.Won, s.core.wonAsPlaced(id))
	}
	return s.step(Claimed{Request: r, Result: result})
}

// end reports that jobs ended, and returns the finishes that the core sends.
func (s *sender) end(ids ...dispatcherd.JobID) []*contract.FinishRequest {
	ev := Released{Session: 1}
	for _, id := range ids {
		ev.Results = append(ev.Results, Result{Job: id, Attempt: 1, OK: true})
	}
	return finishesOf(s.step(ev))
}

func finishesOf(fx []effect.Effect) (sent []*contract.FinishRequest) {
	for _, e := range only[*effect.Finish](fx) {
		sent = append(sent, e.Request)
	}
	return sent
}

// As long as one finish takes all ends that arrive while another one is in flight, a second one would only divide them.
func TestFurtherFinishHasAFullBatch(t *testing.T) {
	s := newSender(t)
	s.won(s.insert(8)[0])
	s.won(s.insert(8)[0])
	require.Len(t, s.end(1), 1, "the first finish is sent at once")
	require.Empty(t, s.end(2, 3, 4, 5, 6, 7, 8))
	second := s.end(9)
	require.Len(t, second, 1)
	require.Len(t, second[0].Items, 8)
}

func TestFurtherClaimHasAtLeastHalfABatch(t *testing.T) {
	s := newSender(t)
	require.Len(t, s.insert(1), 1, "the first claim is sent at once")
	require.Empty(t, s.insert(3), "three rows wait for the answer to the first claim")
	second := s.insert(1)
	require.Len(t, second, 1)
	require.Equal(t, []dispatcherd.JobID{2, 3, 4, 5}, second[0].IDs)
	require.Len(t, s.insert(4), 1)
	require.Empty(t, s.insert(4), "three claims are in flight")
	next := claimsOf(s.won(second[0]))
	require.Len(t, next, 1)
	require.Equal(t, []dispatcherd.JobID{10, 11, 12, 13}, next[0].IDs)
}

func TestNextClaimAfterAFullOneWaitsForNoAnswer(t *testing.T) {
	s := newSender(t)
	require.Len(t, s.insert(20)[0].IDs, 8)
	require.Equal(t, s.now+1, s.core.NextWake())
	s.now++
	next := claimsOf(s.step(Tick{}))
	require.Len(t, next, 1)
	require.Equal(t, []dispatcherd.JobID{9, 10, 11, 12, 13, 14, 15, 16}, next[0].IDs)
	require.Greater(t, s.core.NextWake(), s.now+1, "no slot is free")
}

// Each claim has its own token, so the answer to one says nothing about another.
func TestClaimWithoutAnAnswerDoesNotAffectOtherClaims(t *testing.T) {
	s := newSender(t)
	lost, other, refused := s.insert(1)[0], s.insert(4)[0], s.insert(4)[0]
	s.step(Claimed{Request: lost, Result: contract.ClaimResult{Verdict: contract.Unknown}})
	fx := s.step(Claimed{Request: refused, Result: contract.ClaimResult{Verdict: contract.Refused}})
	require.Empty(t, fx, "the circuit breaker is open")
	fx = s.won(other)
	require.Len(t, only[*effect.Send](fx), 4)
	for _, r := range claimsOf(fx) {
		require.Subset(t, refused.IDs, r.IDs,
			"only rows of the refused claim are claimed again: the row of the claim with an unknown outcome may be running")
	}
	resolve := only[*effect.Resolve](fx)
	require.Len(t, resolve, 1)
	require.Equal(t, lost.Token, resolve[0].Request.Token)
	send := one[*effect.Send](t, s.won(lost))
	require.Equal(t, lost.IDs[0], send.Job)
}

// A Resolve raises the epoch of the dispatcher, a number that every claim names. Claims
// that name the old epoch are Refused. This does not mean that Postgres fails, so the
// circuit breaker stays closed and the rows are claimed again at once.
func TestOldEpochDoesNotOpenTheCircuitBreaker(t *testing.T) {
	s := newSender(t)
	r := s.insert(2)[0]
	ids := slices.Clone(r.IDs)
	fx := s.step(Claimed{Request: r, Result: contract.ClaimResult{Verdict: contract.Refused, OldEpoch: true}})
	again := claimsOf(fx)
	require.Len(t, again, 1)
	require.Equal(t, ids, again[0].IDs)
}

func TestDrainedCoreIsIdleAfterTheLastClaimAndFinish(t *testing.T) {
	s := newSender(t)
	first := s.insert(8)[0]
	second := s.insert(4)[0]
	s.won(first)
	finishes := s.end(1)
	require.Len(t, finishes, 1)
	require.Empty(t, s.end(2, 3, 4, 5, 6, 7, 8), "less than a batch")
	s.step(Drained{})
	finishes = append(finishes, finishesOf(s.step(Finished{Request: finishes[0]}))...)
	require.Len(t, finishes, 2)
	require.Len(t, finishes[1].Items, 7)
	s.step(Finished{Request: finishes[1]})
	require.False(t, s.core.Idle(), "a claim is in flight")
	released := one[*effect.Finish](t, s.won(second)).Request
	require.Len(t, released.Items, 4)
	require.Equal(t, contract.Released, released.Items[0].Outcome)
	require.False(t, s.core.Idle())
	s.step(Finished{Request: released})
	require.True(t, s.core.Idle())
}

// Postgres copies the payload of a job when the job ends. Small ends do not wait for
// large ones.
func TestFinishIsBoundedByTheBytesOfPayloadsAndResults(t *testing.T) {
	e := finishQueue{}
	for id := range dispatcherd.JobID(10) {
		e.add(contract.Finish{ID: id, Size: finishSize / 3})
	}
	e.add(contract.Finish{ID: 10, Size: 3 * finishSize})
	for id := range dispatcherd.JobID(5) {
		e.add(contract.Finish{ID: 11 + id, Size: smallEnd})
	}
	var taken [][]dispatcherd.JobID
	for len(e.queue) > 0 {
		var ids []dispatcherd.JobID
		for _, f := range e.take(7).Items {
			ids = append(ids, f.ID)
		}
		taken = append(taken, ids)
	}
	require.Equal(t, [][]dispatcherd.JobID{{0, 1, 2, 11, 12, 13, 14}, {3, 4, 5, 15}, {6, 7, 8}, {9}, {10}}, taken)
}

// While ends wait for finishes, the queue reuses its memory.
func TestQueueOfEndsAllocatesNothingWhileItsLengthIsBounded(t *testing.T) {
	e := finishQueue{}
	const batch = 100
	var next, taken dispatcherd.JobID
	inOrder := true
	add := func() {
		for range batch {
			e.add(contract.Finish{ID: next})
			next++
		}
	}
	for range 5 {
		add()
	}
	cycle := func() {
		add()
		r := e.take(batch)
		for i := range r.Items {
			inOrder = inOrder && r.Items[i].ID == taken
			taken++
		}
		e.spare = append(e.spare, r)
	}
	cycle()
	require.Zero(t, testing.AllocsPerRun(10, func() {
		for range 50 {
			cycle()
		}
	}))
	require.True(t, inOrder)
	require.Len(t, e.queue, 5*batch)
}
