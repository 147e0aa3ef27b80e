package actor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// randomState is a core in a random state. It has free slots and waiting jobs
// that are not placed yet. A table contains the rows.
type randomState struct {
	t     *testing.T
	rng   *rand.Rand
	core  *Core
	table *table
	now   timing.Instant
	jobs  []Inquiry
	seed  uint64
}

var stateTypes = []string{"a", "b", "c", "d"}

func newRandomState(t *testing.T, seed uint64) *randomState {
	cfg := DefaultConfig()
	cfg.Seed = [2]uint64{seed, 1}
	if rng := rand.New(rand.NewPCG(seed, 3)); rng.IntN(3) == 0 {
		cfg.Limits.Claims, cfg.Limits.ClaimBatch = 1, 1+rng.IntN(4) // the next claim is full or nearly full
	}
	p := &randomState{t: t, rng: rand.New(rand.NewPCG(seed, 2)), core: New(cfg), table: newTable(), now: 1_000_000, seed: seed}
	p.table.now = 1_700_000_000_000_000
	p.slots()
	p.share()
	p.reserve()
	p.waiting()
	p.occupy()
	return p
}

// slots registers one to six slots with random types.
func (p *randomState) slots() {
	ev := Registered{Session: 1, Worker: "w"}
	for n := range 1 + p.rng.IntN(6) {
		types := slices.Clone(stateTypes)
		p.rng.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
		types = types[:1+p.rng.IntN(len(types))]
		slices.Sort(types)
		ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(n + 1), Number: int32(n), Types: types})
	}
	p.answer(p.step(ev), true)
}

// share gives other dispatchers slots for some types.
func (p *randomState) share() {
	if p.rng.IntN(2) == 0 {
		return
	}
	ev := ClusterCapacity{Capacity: map[string]int{}, Shares: map[string]contract.Share{}}
	for _, name := range stateTypes {
		if before, behind := p.rng.IntN(3), p.rng.IntN(3); before+behind > 0 {
			ev.Capacity[name], ev.Shares[name] = before+behind, contract.ShareOf(1, contract.Others{SmallerIDs: before, LargerIDs: behind, Least: 1})
		}
	}
	p.answer(p.step(ev), true)
}

// reserve makes the core reserve some slots for a claim in flight or for the
// next claim.
func (p *randomState) reserve() {
	id := dispatcherd.JobID(1_000)
	for range p.rng.IntN(3) {
		for range p.rng.IntN(4) {
			id += 5
			q := Inquiry{
				ID: id, Type: stateTypes[p.rng.IntN(len(stateTypes))], Priority: dispatcherd.Priority(p.rng.IntN(11)),
				RunAt: p.table.now - int64(p.rng.IntN(100_000))*1000,
			}
			p.table.insert(claimfake.Row{ID: q.ID, Type: q.Type, Priority: q.Priority, RunAt: q.RunAt, MaxAttempts: 5})
			p.jobs = append(p.jobs, q)
		}
		p.core.backlog.PollNow()
		p.answer(p.step(Notified{}), true)
	}
}

// nonLocal reports whether a row belongs to another dispatcher's share.
func (p *randomState) nonLocal(id dispatcherd.JobID, typ string) bool {
	t, known := p.core.index.Lookup(typ)
	return id > 0 && known && p.core.backlog.LaneOf(backlog.Lane{Type: t}, id).NonLocal
}

// penalty returns the penalty of a job in milliseconds.
func (p *randomState) penalty(id dispatcherd.JobID, typ string) int64 {
	if p.nonLocal(id, typ) {
		return scoring.Penalty.Milliseconds()
	}
	return 0
}

// capacity returns the capacity that the score of a type uses.
func (p *randomState) capacity(typ string) int {
	if t, known := p.core.index.Lookup(typ); known {
		return p.core.capacity(t)
	}
	return 0
}

// waiting inserts rows and requests of different ages without placing them.
func (p *randomState) waiting() {
	for n := range p.rng.IntN(12) {
		q := Inquiry{
			ID: dispatcherd.JobID(n*5 + 1), Type: stateTypes[p.rng.IntN(len(stateTypes))],
			Priority: dispatcherd.Priority(p.rng.IntN(11)), RunAt: p.table.now - int64(p.rng.IntN(500_000))*1000,
		}
		if p.rng.IntN(10) == 0 {
			q.RunAt = p.table.now + int64(1+p.rng.IntN(1000))*1_000_000
			q.Failures = int32(p.rng.IntN(2))
		}
		p.table.insert(claimfake.Row{ID: q.ID, Type: q.Type, Priority: q.Priority, RunAt: q.RunAt, MaxAttempts: 5})
		p.jobs = append(p.jobs, q)
	}
	for n := range p.rng.IntN(6) {
		q := Inquiry{ID: dispatcherd.JobID(-n - 1), Type: stateTypes[p.rng.IntN(len(stateTypes))], Priority: dispatcherd.Priority(p.rng.IntN(11))}
		p.hold(Requested{Job: q.ID, Type: q.Type, Priority: q.Priority, Wait: true})
		p.jobs = append(p.jobs, q)
		p.pass(int64(p.rng.IntN(2) * p.rng.IntN(200_000)))
	}
	p.hold(Notified{})
	p.core.backlog.PollNow()
	p.stepAll(false)
}

// occupy withdraws a slot.
func (p *randomState) occupy() {
	if p.rng.IntN(3) == 0 {
		p.hold(Withdrew{Session: 1, Numbers: []int32{int32(p.rng.IntN(6))}})
	}
}

func (p *randomState) pass(ms int64) {
	p.now += timing.Instant(ms)
	p.table.now += ms * 1000
	p.hold(Tick{})
}

func (p *randomState) step(ev Event) []effect.Effect { return kept(p.core.Step(p.now, ev, nil)) }

// hold applies an event without making a decision.
func (p *randomState) hold(ev Event) {
	p.answer(p.step(Together{Events: []Event{ev}, Hold: true}), false)
}

func (p *randomState) stepAll(decide bool) { p.answer(p.step(Together{Hold: !decide}), decide) }

// answer executes fetches until the core sends no further one. Claims stay in
// flight.
func (p *randomState) answer(fx []effect.Effect, decide bool) {
	for len(fx) > 0 {
		e := fx[0]
		fx = fx[1:]
		switch e := e.(type) {
		case *effect.Fetch:
			fx = append(
				fx,
				p.step(Together{Events: []Event{Fetched{Request: e.Request, Result: p.table.fetch(e.Request)}}, Hold: !decide})...)
		case *effect.SetGate:
			fx = append(fx, p.step(Together{Events: []Event{GateSet{Subscribed: e.Subscribed}}, Hold: !decide})...)
		}
	}
}

// expected ranks the waiting jobs that were read, by scoring and sorting all of
// them. hidden is the number of unread rows that rank before a job.
func (p *randomState) expected() (ranks, hidden map[dispatcherd.JobID]int) {
	type scored struct {
		head

		id dispatcherd.JobID
	}
	var all, unread []scored
	for _, q := range p.jobs {
		h := head{number: int64(q.ID), mode: dispatcherd.Queued, arrival: int64(p.now) - (p.table.now/1000 - floorMS(q.RunAt))}
		t, known := p.core.index.Lookup(q.Type)
		if j := p.core.jobs[q.ID]; j != nil && j.state != stateWaiting {
			continue
		}
		if q.ID < 0 {
			h.number, h.mode, h.arrival = -int64(q.ID), dispatcherd.OnDemand, int64(p.core.jobs[q.ID].request.arrival)
		} else if !known || q.RunAt > p.table.now {
			continue
		}
		h.arrival += p.penalty(q.ID, q.Type)
		h.score = p.core.cfg.Weights.Score(h.mode, q.Priority, int64(p.now)-h.arrival, p.core.capacity(t)).Total()
		switch {
		case q.ID < 0,
			p.core.backlog.State(p.core.backlog.LaneOf(backlog.Lane{Type: t, Priority: q.Priority}, q.ID)).
				Contains(contract.Key{RunAt: q.RunAt, ID: q.ID}):
			all = append(all, scored{h, q.ID})
		case p.core.index.Capacity(t) > 0:
			unread = append(unread, scored{h, q.ID})
		}
	}
	slices.SortFunc(all, func(a, b scored) int { return compareHeads(a.head, b.head) })
	ranks, hidden = map[dispatcherd.JobID]int{}, map[dispatcherd.JobID]int{}
	for i, s := range all {
		ranks[s.id] = i + 1
		for _, u := range unread {
			if u.before(&s.head) {
				hidden[s.id]++
			}
		}
	}
	return ranks, hidden
}

// tally counts the confirmed explanations by kind.
type tally struct{ next, claimed, preempted, full int }

// check explains every job, lets the core decide, and compares the explanations
// with the decisions.
func (p *randomState) check(sum *tally) {
	ranks, hidden := p.expected()
	said := map[dispatcherd.JobID]Explanation{}
	for _, q := range p.jobs {
		x := p.core.Explain(q)
		if p.seed%16 < 4 {
			p.core.cfg.Limits.StepWork = 1
			require.Equal(p.t, x, p.core.Explain(q), "seed %d: the same explanation in the smallest portions", p.seed)
			p.core.cfg.Limits.StepWork = DefaultConfig().Limits.StepWork
		}
		said[q.ID] = x
		if rank, waits := ranks[q.ID]; waits {
			require.Equal(p.t, rank, x.RankAll, "seed %d: rank of %d", p.seed, q.ID)
			require.Equal(p.t, len(ranks), x.WaitingAll, "seed %d", p.seed)
			require.True(p.t, x.AtLeast || hidden[q.ID] == 0, "seed %d: better rows are unread", p.seed)
		}
		require.LessOrEqual(p.t, len(x.Ahead), x.Competing)
		if x.Waiting > 0 {
			require.LessOrEqual(p.t, x.Rank, x.Waiting, "seed %d: %d is a waiting job", p.seed, q.ID)
			require.LessOrEqual(p.t, x.RankAll, x.WaitingAll, "seed %d: %d is a waiting job", p.seed, q.ID)
		}
		if room := p.core.cfg.Limits.ClaimBatch; room > 2*len(p.jobs) {
			require.NotContains(p.t, x.Reasons, ReasonClaimsFull, "seed %d: %d rows have room", p.seed, room)
		}
		p.checkRivals(&x, q)
	}
	full := p.staysFull()
	sent := p.sendsFullClaim()
	for _, q := range p.jobs {
		x := said[q.ID]
		j := p.core.jobs[q.ID]
		placed := j != nil && j.slot != noSlot
		switch {
		case slices.Contains(x.Reasons, ReasonRunning):
			require.True(p.t, placed, "seed %d: %d runs", p.seed, q.ID)
		case slices.Contains(x.Reasons, ReasonClaimed):
			sum.claimed++
			if !placed {
				sum.preempted++
			}
		case len(x.Reasons) == 0:
			sum.next++
			require.True(p.t, placed, "seed %d: %d was to start next", p.seed, q.ID)
			require.Equal(p.t, x.Slot, p.core.index.SlotID(j.slot), "seed %d: the slot of %d", p.seed, q.ID)
			require.Equal(p.t, x.Terms, j.terms, "seed %d: the score of %d", p.seed, q.ID)
		case placed:
			kept := []Reason{ReasonOutranked, ReasonAwaitsFetch}
			if !full { // better jobs may use fewer entries of the claim
				kept = append(kept, ReasonClaimsFull)
			}
			require.Subset(p.t, kept, x.Reasons, "seed %d: %d started although %v", p.seed, q.ID, x.Reasons)
		}
		if full && x.Free > 0 && slices.Contains(x.Reasons, ReasonClaimsFull) {
			sum.full++
		}
		now := p.core.Explain(q)
		require.True(p.t, sent || len(now.Reasons) > 0, "seed %d: %d could have started by now", p.seed, q.ID)
		if placed {
			require.Subset(p.t, []Reason{ReasonClaimed, ReasonRunning}, now.Reasons)
			require.Equal(p.t, p.core.index.SlotID(j.slot), now.Slot)
		}
	}
	if sent {
		p.check(sum) // checks the jobs for which the claim had no room
	}
}

// staysFull reports whether the next claim is full and no request will preempt
// a job in it.
func (p *randomState) staysFull() bool {
	return len(p.core.claims.next) >= p.core.claimRoom() && !slices.ContainsFunc(p.core.types, func(k *typeState) bool { return k.urgent })
}

// sendsFullClaim lets the core decide, and reports whether it has sent a full
// claim.
func (p *randomState) sendsFullClaim() bool {
	return slices.ContainsFunc(p.step(Tick{}), func(e effect.Effect) bool {
		claim, ok := e.(*effect.Claim)
		return ok && len(claim.Request.IDs) == p.core.cfg.Limits.ClaimBatch
	})
}

// checkRivals advances the time in the formula: a rival that the job will pass
// ranks first until exactly the stated instant.
func (p *randomState) checkRivals(x *Explanation, q Inquiry) {
	w := p.core.cfg.Weights
	for _, r := range x.Ahead {
		require.GreaterOrEqual(p.t, r.Score.Total, x.Terms.Points().Total, "seed %d", p.seed)
		if r.Passed == nil {
			continue
		}
		mode, after := dispatcherd.Queued, time.Duration(math.Round(*r.Passed*1000))*time.Millisecond
		if r.Job.OnDemand() {
			mode = dispatcherd.OnDemand
		}
		at := func(d time.Duration) (mine, theirs scoring.Milli) {
			own := (x.Age + d).Milliseconds() - p.penalty(q.ID, q.Type)
			other := p.age(r.Job) + d.Milliseconds() - p.penalty(r.Job, r.Type)
			return w.Score(x.Mode, x.Priority, own, p.capacity(x.Type)).Total(),
				w.Score(mode, r.Priority, other, p.capacity(r.Type)).Total()
		}
		mine, theirs := at(after)
		require.GreaterOrEqual(p.t, mine, theirs, "seed %d: %d passes %d after %v", p.seed, q.ID, r.Job, after)
		born := x.Age.Milliseconds() >= p.penalty(q.ID, q.Type) && p.age(r.Job) >= p.penalty(r.Job, r.Type)
		if after > 0 && born { // a job whose age is less than its penalty has no age term yet
			mine, theirs = at(after - time.Millisecond)
			require.LessOrEqual(p.t, mine, theirs, "seed %d: not before", p.seed)
		}
	}
}

// age is a waiting job's age in milliseconds.
func (p *randomState) age(id dispatcherd.JobID) int64 {
	if id < 0 {
		return int64(p.now - p.core.jobs[id].request.arrival)
	}
	i := slices.IndexFunc(p.jobs, func(q Inquiry) bool { return q.ID == id })
	return p.table.now/1000 - floorMS(p.jobs[i].RunAt)
}

// In every state, a job that is said to start next starts on the named slot
// with the named score. A job that has to wait for a reason other than jobs
// with a higher score does not start. The ranks are the positions in the
// sorted list of all jobs.
func TestExplanationAgreesWithTheDecision(t *testing.T) {
	states := 60_000
	if testing.Short() || raceEnabled {
		states = 4_000 // with fewer states, a share lacks rare cases
	}
	const shares = 4 // the shares run in parallel
	for share := range shares {
		t.Run(fmt.Sprintf("share %d of %d", share+1, shares), func(t *testing.T) {
			t.Parallel()
			var sum tally
			for seed := share; seed < states; seed += shares {
				newRandomState(t, uint64(seed)).check(&sum)
			}
			require.Greater(t, sum.preempted, states/shares/16, "reserved slots that a request took over, of %d", sum.claimed)
			require.Greater(t, sum.next, states/shares/4, "states in which something starts")
			require.Greater(t, sum.full, states/shares/200, "jobs that had a slot, and no room in a claim")
		})
	}
}

// explained is a core with one busy slot for pdf and two waiting rows.
func explained(t *testing.T) *randomState {
	p := &randomState{t: t, core: New(DefaultConfig()), table: newTable(), now: 1_000}
	p.table.now = 1_700_000_000_000_000
	p.answer(p.step(Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{{ID: 1, Number: 0, Types: []string{"pdf"}}}}), true)
	p.step(Requested{Job: -1, Type: "pdf"})
	for n, priority := range []dispatcherd.Priority{0, 5} {
		q := Inquiry{ID: dispatcherd.JobID(n + 1), Type: "pdf", Priority: priority, RunAt: p.table.now}
		p.table.insert(claimfake.Row{ID: q.ID, Type: q.Type, Priority: q.Priority, RunAt: q.RunAt, MaxAttempts: 5})
		p.jobs = append(p.jobs, q)
	}
	p.core.backlog.PollNow()
	p.answer(p.step(Notified{}), true)
	return p
}

func TestExplanationNamesEveryReasonAndRival(t *testing.T) {
	p := explained(t)
	x := p.core.Explain(p.jobs[0])
	require.Equal(t, []Reason{ReasonCapacityBusy, ReasonOutranked}, x.Reasons)
	require.Equal(t, 2, x.Rank)
	require.Equal(t, []contract.Rival{
		{
			Job: 2, Mode: "queued", Type: "pdf", Priority: 5,
			Score: contract.Score{Total: 5620, ScoreTerms: contract.ScoreTerms{Base: 5120, Rarity: 500}},
		},
	},
		x.Ahead, "never passed: both scores grow at the same rate")
	require.Equal(t, 1439_250*time.Millisecond, x.Closes)
	require.EqualValues(t, -1, x.Slots[0].Job)
	x = p.core.Explain(p.jobs[1])
	require.Equal(t, []Reason{ReasonCapacityBusy}, x.Reasons)
	require.Equal(t, 1, x.Rank)
	running := p.core.Explain(Inquiry{ID: -1})
	require.Equal(t, []Reason{ReasonRunning}, running.Reasons)
	require.False(t, running.Bounded, "nothing can pass it any more")
	require.Equal(t, []Reason{ReasonTypeUnknown}, p.core.Explain(Inquiry{ID: 9, Type: "excel", RunAt: p.table.now}).Reasons)
	require.True(t, p.core.Explain(Inquiry{ID: 9, Type: "excel", RunAt: p.table.now}).AtLeast,
		"no slot supports it, so its rivals are not read")
	require.Zero(t, p.core.Explain(Inquiry{ID: 9, Type: "excel", RunAt: p.table.now}).OtherSlots)
	p.step(ClusterCapacity{Capacity: map[string]int{"excel": 3}})
	require.Equal(t, 3, p.core.Explain(Inquiry{ID: 9, Type: "excel", RunAt: p.table.now}).OtherSlots, "another dispatcher supports it")
	late := Inquiry{ID: 9, Type: "pdf", RunAt: p.table.now + 5_000_000}
	require.Equal(t, []Reason{ReasonScheduled, ReasonCapacityBusy, ReasonOutranked}, p.core.Explain(late).Reasons)
	require.Equal(t, 1439_250*time.Millisecond+5*time.Second, p.core.Explain(late).Closes, "it is not due for that long")
	late.Failures = 1
	require.Equal(t, ReasonBackoff, p.core.Explain(late).Reasons[0])
	passed := Inquiry{ID: 9, Type: "pdf", RunAt: p.table.now - 1}
	require.Contains(t, p.core.Explain(passed).Reasons, ReasonClaimRaceLost)
	behind := Inquiry{ID: 9, Type: "pdf", RunAt: p.table.now}
	require.Contains(t, p.core.Explain(behind).Reasons, ReasonUnread)
	p.step(Drained{})
	require.Equal(t, ReasonDraining, p.core.Explain(p.jobs[0]).Reasons[0])
}

// Rows of a type without a slot are not read, so the cursor of the lane says
// nothing about a row that is not in the cache.
func TestRowOfATypeWithoutSlotsIsNotReportedAsPassed(t *testing.T) {
	p := explained(t)
	p.table.insert(claimfake.Row{ID: 3, Type: "pdf", RunAt: p.table.now, MaxAttempts: 5})
	p.core.backlog.PollNow()
	p.answer(p.step(Notified{}), true) // the answer is full: the table may contain more
	p.step(Unregistered{Session: 1})
	passed := Inquiry{ID: 9, Type: "pdf", RunAt: p.table.now - 1}
	require.Equal(t, []Reason{ReasonNoCapacity, ReasonOutranked}, p.core.Explain(passed).Reasons)
	behind := Inquiry{ID: 9, Type: "pdf", RunAt: p.table.now}
	require.Equal(t, []Reason{ReasonNoCapacity, ReasonOutranked}, p.core.Explain(behind).Reasons)
}

// One row is being claimed and one fills the next claim. The third row waits
// although a slot is free. A request with a lower rank waits as well.
func TestFullClaimDelaysJobsOfLowerRank(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Limits.Claims, cfg.Limits.ClaimBatch = 1, 1
	p := &randomState{t: t, core: New(cfg), table: newTable(), now: 1_000}
	p.table.now = 1_700_000_000_000_000
	ev := Registered{Session: 1, Worker: "w"}
	for n := range 4 {
		ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(n + 1), Number: int32(n), Types: []string{"pdf"}})
		if id := dispatcherd.JobID(n + 1); n < 3 {
			p.table.insert(claimfake.Row{ID: id, Type: "pdf", Priority: 10, RunAt: p.table.now, MaxAttempts: 5})
		}
	}
	p.answer(p.step(ev), true)
	p.step(Tick{})
	row := Inquiry{ID: 3, Type: "pdf", Priority: 10, RunAt: p.table.now}
	require.Equal(t, []Reason{ReasonClaimsFull}, p.core.Explain(row).Reasons)
	p.step(Requested{Job: -1, Type: "pdf"})
	require.Equal(t, []Reason{ReasonClaimsFull, ReasonOutranked}, p.core.Explain(Inquiry{ID: -1}).Reasons)
	require.Equal(t, 2, p.core.Explain(row).Free, "a slot is free")
	p.step(Requested{Job: -2, Type: "pdf", Priority: 10})
	require.Equal(t, []Reason{ReasonRunning}, p.core.Explain(Inquiry{ID: -2}).Reasons, "it ranks before the row")
	require.Equal(t, []Reason{ReasonClaimsFull, ReasonOutranked}, p.core.Explain(Inquiry{ID: -1}).Reasons)
}

// The cache of the lane with the better jobs is empty, and its next fetch is in
// flight.
func TestUnreadRowsDelayJobsOfLowerRank(t *testing.T) {
	p := &randomState{t: t, core: New(DefaultConfig()), table: newTable(), now: 1_000}
	p.table.now = 1_700_000_000_000_000
	for id := range dispatcherd.JobID(6) {
		p.table.insert(claimfake.Row{ID: id + 1, Type: "pdf", Priority: 10, RunAt: p.table.now, MaxAttempts: 5})
	}
	p.table.insert(claimfake.Row{ID: 7, Type: "csv", RunAt: p.table.now, MaxAttempts: 5})
	slot := func(id dispatcherd.SlotID) dispatcherd.Slot {
		return dispatcherd.Slot{ID: id, Number: int32(id), Types: []string{"csv", "pdf"}}
	}
	for _, e := range p.step(Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{slot(1)}}) {
		if e, ok := e.(*effect.Fetch); ok { // two rows; the next fetch stays in flight
			p.step(Fetched{Request: e.Request, Result: p.table.fetch(e.Request)})
		}
	}
	p.step(Registered{Session: 2, Worker: "v", Slots: []dispatcherd.Slot{slot(2), slot(3), slot(4)}})
	x := p.core.Explain(Inquiry{ID: 7, Type: "csv", RunAt: p.table.now})
	require.Positive(t, x.Free)
	require.Zero(t, x.Competing, "no known job ranks before")
	require.Equal(t, []Reason{ReasonAwaitsFetch}, x.Reasons)
	require.True(t, x.AtLeast)
}

func TestRankOfARequest(t *testing.T) {
	p := explained(t)
	for n := range 3 {
		p.step(Requested{Job: dispatcherd.JobID(-2 - n), Type: "pdf", Priority: dispatcherd.Priority(n)})
	}
	// Scores: 6,144; 5,120 for row 2, which is the older one; 5,120; 4,096.
	for id, want := range map[dispatcherd.JobID]int{-4: 1, -3: 3, -2: 4} {
		rank, waits, ok := p.core.RankOfRequest(id)
		require.True(t, ok)
		require.Equal(t, 5, waits)
		require.Equal(t, want, rank, "request %d", id)
	}
	_, _, ok := p.core.RankOfRequest(-1)
	require.False(t, ok, "it runs")
}

// A slot is free, but a job that is not due, or that was not read yet, would not be assigned to it now.
func TestJobThatWouldNotBePlacedNowHasNoSlot(t *testing.T) {
	p := explained(t)
	p.step(Registered{Session: 2, Worker: "v", Slots: []dispatcherd.Slot{{ID: 9, Types: []string{"csv"}}}})
	for failures, reason := range []Reason{ReasonScheduled, ReasonBackoff} {
		x := p.core.Explain(Inquiry{ID: 77, Type: "csv", RunAt: p.table.now + 60_000_000, Failures: int32(failures)})
		require.Contains(t, x.Reasons, reason)
		require.Equal(t, 1, x.Free)
		require.Zero(t, x.Slot)
	}
	x := p.core.Explain(Inquiry{ID: 78, Type: "csv", RunAt: p.table.now})
	require.Equal(t, []Reason{ReasonUnread}, x.Reasons)
	require.Zero(t, x.Slot, "other jobs may be read with it")
}

// If other dispatchers support the type as well, the overtaking window is
// longer by the configured penalty.
func TestWindowOfASharedTypeGrowsByThePenalty(t *testing.T) {
	p := explained(t)
	p.core.cfg.Penalty = 7 * time.Second
	alone := p.core.Explain(p.jobs[0]).Window
	p.step(
		ClusterCapacity{
			Capacity: map[string]int{"pdf": 1},
			Shares:   map[string]contract.Share{"pdf": contract.ShareOf(1, contract.Others{SmallerIDs: 1, Least: 1})},
		},
	)
	require.Equal(t, alone+7*time.Second, p.core.Explain(p.jobs[0]).Window)
}
