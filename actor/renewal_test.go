package actor

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The row of a running job is locked for ten minutes. Its update is sent after pauses of up
// to a minute, and not after the end of the job. Offers do not wait for these pauses.
func TestUpdateOfALockedRowIsSentAgainAfterAPause(t *testing.T) {
	s := newBusySender(t, 8)
	id := slices.Max(slices.Collect(maps.Keys(s.core.jobs)))
	s.core.renew(&offered{ResumeOffer: ResumeOffer{Job: id, Attempt: s.core.jobs[id].attempt}, renews: 3 << 16})
	sent := 0
	adopt := func(fx []effect.Effect) (asked int) {
		for {
			all := only[*effect.Adopt](fx)
			if len(all) == 0 {
				return asked
			}
			var busy []dispatcherd.JobID
			for _, j := range one[*effect.Adopt](t, fx).Request.Jobs {
				asked++
				if j.ID == id {
					sent++
					busy = append(busy, id)
				}
			}
			fx = s.step(Adopted{Request: all[0].Request, Result: contract.AdoptResult{Verdict: contract.OK, Busy: busy}})
		}
	}
	pass := func(seconds int) {
		for range seconds * 20 {
			s.now += 50
			adopt(s.step(Tick{}))
		}
	}
	pass(600)
	require.LessOrEqual(t, sent, 30)
	require.GreaterOrEqual(t, sent, 12)
	require.NotZero(t, adopt(s.step(Registered{Session: 99, Worker: "w", Fingerprint: 1 << 16, Offers: []ResumeOffer{{
		Job: 777, Attempt: 1, From: 2 << 16, Slot: dispatcherd.Slot{ID: 999, Number: 1, Types: []string{"a"}},
	}}})), "an offer is sent at once")
	sent = 0
	s.end(id)
	pass(600)
	require.Zero(t, sent)
	require.Empty(t, s.core.adopts.byJob)
}
