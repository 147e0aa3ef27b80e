package actor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// Each session of a user may offer as many jobs as it may have slots. While Postgres does not answer, a new session offers more.
func TestUsersShareTheBoundOfUndecidedOffers(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Limits.Slots = 8 // so 16 offers may be undecided
	c := New(cfg)
	session, job := dispatcherd.SessionID(0), dispatcherd.JobID(0)
	offer := func(user string) (rejected string) {
		session++
		ev := Registered{Session: session, Worker: "w", User: user}
		for range 2 {
			job++
			ev.Offers = append(ev.Offers, ResumeOffer{
				Job: job, Attempt: 1, Slot: dispatcherd.Slot{ID: dispatcherd.SlotID(job), Number: int32(job), Types: []string{"pdf"}},
			})
		}
		for _, e := range c.Step(1, ev, nil) {
			if e, ok := e.(*effect.RejectSlots); ok {
				rejected = e.Reason
			}
		}
		require.NoError(t, c.Check())
		return rejected
	}
	for range 7 {
		require.Empty(t, offer("uid 1"))
	}
	require.Equal(t, "too many undecided resume offers: uid 1 has 14, wants 2 more and may have 14, while all users have 14 of 16: "+
		"use fewer, or another dispatcher", offer("uid 1"))
	require.Empty(t, offer("uid 2"), "one user does not exclude others")
	for id := range dispatcherd.SessionID(9) { // those of ended sessions do not count
		c.Step(1, Unregistered{Session: id + 1}, nil)
	}
	require.Zero(t, c.quotas.Offers.Held())
}
