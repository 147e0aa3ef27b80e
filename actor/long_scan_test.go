package actor

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// longScans is a random walk in which backfill scans are answered long after
// they read the table. All other statements continue meanwhile.
type longScans struct {
	t       *testing.T
	rng     *rand.Rand
	core    *Core
	table   *table
	now     timing.Instant
	next    dispatcherd.JobID
	running []*effect.Send
	queue   []effect.Effect
	scan    *contract.FetchRequest // in flight
	result  contract.FetchResult   // its result
	brought int                    // rows that backfill scans returned
}

func newLongScans(t *testing.T, seed uint64) *longScans {
	cfg := DefaultConfig()
	cfg.Poll = msDuration(20)
	cfg.LaneLength = 1 + int(seed%7)
	cfg.LanesPerFetch = 11 + int(seed%3)*11
	cfg.Retry = timing.Backoff{Base: msDuration(1), Max: msDuration(40)}
	return &longScans{t: t, rng: rand.New(rand.NewPCG(seed, 9)), core: New(cfg), table: newTable()}
}

func (l *longScans) feed(ev Event) {
	l.core.backlog.SetSlow(true)
	for _, e := range kept(l.core.Step(l.now, ev, nil)) {
		switch e := e.(type) {
		case *effect.Send:
			l.running = append(l.running, e)
		case *effect.Fetch:
			if !e.Request.Backfill {
				l.queue = append(l.queue, e)
				continue
			}
			require.Nil(l.t, l.scan, "one scan at a time")
			l.scan, l.result = e.Request, l.table.fetch(e.Request)
			for i := range e.Request.Lanes {
				require.NotZero(l.t, e.Request.Lanes[i].Before)
			}
		case *effect.Claim, *effect.Resolve, *effect.Adopt, *effect.Finish, *effect.SetGate:
			l.queue = append(l.queue, e)
		}
	}
	require.NoError(l.t, l.core.Check())
}

func (l *longScans) answer() {
	e := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	switch e := e.(type) {
	case *effect.Fetch:
		l.feed(Fetched{Request: e.Request, Result: l.table.fetch(e.Request)})
	case *effect.Claim:
		l.feed(Claimed{Request: e.Request, Result: l.table.claim(1, e.Request)})
	case *effect.Finish:
		l.feed(Finished{Request: e.Request, Result: l.table.finish(1, e.Request)})
	case *effect.SetGate:
		l.feed(GateSet{Subscribed: e.Subscribed})
	}
}

func (l *longScans) answerScan() {
	switch {
	case l.scan == nil:
	case l.rng.IntN(10) == 0:
		l.answerScanWith(contract.Refused)
	default:
		l.answerScanWith(contract.OK)
	}
}

func (l *longScans) answerScanWith(v contract.Verdict) {
	req, res := l.scan, l.result
	l.scan = nil
	if v != contract.OK {
		res = contract.FetchResult{Verdict: v}
	}
	l.brought += len(res.Candidates)
	l.feed(Fetched{Request: req, Result: res})
}

func (l *longScans) insert(late bool) {
	for range 1 + l.rng.IntN(6) {
		l.next++
		r := claimfake.Row{ID: l.next, Type: referenceTypes[l.rng.IntN(2)], Priority: dispatcherd.Priority(l.rng.IntN(2)), RunAt: l.table.now}
		if late {
			r.RunAt -= int64(l.rng.IntN(50_000)) * 1000
		}
		l.table.insert(r)
	}
	l.feed(Notified{})
}

func (l *longScans) turn() {
	ms := l.rng.IntN(8)
	l.now += timing.Instant(ms)
	l.table.now += int64(ms) * 1000
	switch k := l.rng.IntN(10); {
	case k < 2 && l.next < 400:
		l.insert(false)
	case k == 2 && l.next < 400:
		l.insert(true)
	case k < 7 && len(l.running) > 0:
		i := l.rng.IntN(len(l.running))
		e := l.running[i]
		l.running = slices.Delete(l.running, i, i+1)
		n := l.rng.IntN(20)
		l.feed(Released{Session: e.Session, Results: []Result{{Job: e.Job, Attempt: e.Attempt, OK: n > 1, Returned: n == 1}}})
	default:
		l.feed(Tick{})
	}
	for len(l.queue) > 0 && l.rng.IntN(8) > 0 {
		l.answer()
	}
	if l.rng.IntN(30) == 0 {
		l.answerScan()
	}
}

// Backfill scans last for any time, and jobs start, end and return meanwhile.
// Every row is found, and no row in hand is claimed: with a single dispatcher
// no claim is ever lost.
func TestSlowBackfillScanLosesAndRepeatsNoRow(t *testing.T) {
	t.Parallel()
	lives := 50
	if raceEnabled {
		lives = 4
	} else if testing.Short() {
		lives = 15
	}
	brought := 0
	for seed := range lives {
		l := newLongScans(t, uint64(seed))
		l.feed(Registered{Session: 1, Slots: []dispatcherd.Slot{
			{
				ID:     1,
				Number: 0,
				Types:  referenceTypes[:1],
			},
			{ID: 2, Number: 1, Types: referenceTypes[:2]},
			{ID: 3, Number: 2, Types: referenceTypes[1:2]},
		}})
		l.feed(Listening{On: true})
		for range 1_500 {
			l.turn()
		}
		open := func() bool {
			return slices.ContainsFunc(l.table.Rows(), func(r *claimfake.Row) bool { return !r.Status.Final() })
		}
		for turns := 0; open(); turns++ {
			require.Less(t, turns, 60_000, "seed %d: rows are never found", seed)
			l.next = 400
			l.turn()
		}
		require.Zero(t, l.core.Stats().Lost, "seed %d: a claim was lost", seed)
		brought += l.brought
	}
	require.Positive(t, brought)
}
