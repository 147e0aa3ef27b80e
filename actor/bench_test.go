package actor

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// saturatedCore keeps a core saturated. Every slot is busy, every lane has more
// jobs than the slots can run, and a released slot is assigned again at once.
// Statements are answered immediately from preallocated memory, so that only
// the core is measured.
type saturatedCore struct {
	core     *Core
	now      timing.Instant
	nextID   dispatcherd.JobID
	running  []sessionJobs // by session; the oldest job is released first
	at       int           // index of the session whose jobs end next
	placed   int
	fx       []effect.Effect
	queue    []statement
	released Released
	fetched  Fetched
	claimed  Claimed
	finished Finished
}

// statement is a statement to answer: either the one request that is not nil,
// or a setting of the notification gate.
type statement struct {
	fetch      *contract.FetchRequest
	claim      *contract.ClaimRequest
	finish     *contract.FinishRequest
	subscribed bool
}

// sessionJobs holds the running jobs of one session, oldest first.
type sessionJobs struct {
	jobs []Result
	at   int
}

func newSaturatedCore(slots, types, sets, batch int) *saturatedCore {
	rng := rand.New(rand.NewPCG(1, 2))
	cfg := DefaultConfig()
	m := &saturatedCore{core: New(cfg)}
	m.released.Results = make([]Result, batch)
	all := make([][]string, sets)
	for i := range all {
		all[i] = smallSet(rng, types)
	}
	perSession := min(slots, 1000)
	for s := range slots / perSession {
		ev := Registered{Session: dispatcherd.SessionID(s), Worker: "w"}
		for i := range perSession {
			ev.Slots = append(ev.Slots, dispatcherd.Slot{
				ID: dispatcherd.SlotID(s*perSession + i + 1), Number: int32(i), Types: all[rng.IntN(sets)],
			})
		}
		m.running = append(m.running, sessionJobs{})
		m.step(ev)
	}
	for range 5 * slots / batch { // lanes reach their stable length
		m.turn()
	}
	return m
}

// smallSet draws one to three types.
func smallSet(rng *rand.Rand, types int) []string {
	var set []string
	for range 1 + rng.IntN(3) {
		set = append(set, fmt.Sprintf("type-%04d", rng.IntN(types)))
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// turn releases the oldest jobs of one session. The core then places as many
// new jobs.
func (m *saturatedCore) turn() {
	m.now++
	r := &m.running[m.at]
	m.released.Session = dispatcherd.SessionID(m.at)
	for i := range m.released.Results {
		m.released.Results[i] = r.jobs[r.at]
		r.jobs[r.at].Job = 0
		r.at++
		if r.at == len(r.jobs) {
			r.at = 0
		}
	}
	m.at = (m.at + 1) % len(m.running)
	m.step(&m.released)
}

func (m *saturatedCore) step(ev Event) {
	m.feed(ev)
	answered := 0
	for answered < len(m.queue) { // an answer may cause further statements
		m.answer(m.queue[answered])
		answered++
	}
	m.queue = m.queue[:0]
}

func (m *saturatedCore) feed(ev Event) {
	m.fx = m.core.Step(m.now, ev, m.fx[:0])
	for i := range m.fx {
		switch e := m.fx[i].(type) {
		case *effect.Send:
			m.start(e)
		case *effect.Fetch:
			m.queue = append(m.queue, statement{fetch: e.Request})
		case *effect.Claim:
			m.queue = append(m.queue, statement{claim: e.Request})
		case *effect.Finish:
			m.queue = append(m.queue, statement{finish: e.Request})
		case *effect.SetGate:
			m.queue = append(m.queue, statement{subscribed: e.Subscribed})
		}
	}
}

// start records a job in the array element of the job that was released first.
func (m *saturatedCore) start(e *effect.Send) {
	m.placed++
	r := &m.running[e.Session]
	job := Result{Job: e.Job, Attempt: e.Attempt, OK: true}
	for i := r.at - 1; ; i-- {
		if i < 0 {
			i = len(r.jobs) - 1
		}
		if i < 0 || r.jobs[i].Job != 0 {
			break
		}
		if i == r.at || r.jobs[(i+len(r.jobs)-1)%len(r.jobs)].Job != 0 {
			r.jobs[i] = job
			return
		}
	}
	r.jobs = append(r.jobs, job) // the slot has not run a job before
}

func (m *saturatedCore) answer(s statement) {
	switch {
	case s.fetch != nil:
		res := &m.fetched.Result
		m.fetched.Request = s.fetch
		res.DBNow, res.Candidates = int64(m.now)*1000, res.Candidates[:0]
		for i := range s.fetch.Lanes {
			if s.fetch.Lanes[i].Priority > 1 {
				continue // two priorities of each type have jobs
			}
			for range s.fetch.Lanes[i].Limit {
				m.nextID++
				res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: contract.Key{RunAt: res.DBNow, ID: m.nextID}})
			}
		}
		m.feed(&m.fetched)
	case s.claim != nil:
		res := &m.claimed.Result
		m.claimed.Request, res.Won = s.claim, res.Won[:0]
		for _, id := range s.claim.IDs {
			res.Won = append(res.Won, m.core.wonAsPlaced(id))
		}
		m.feed(&m.claimed)
	case s.finish != nil:
		m.finished.Request = s.finish
		m.feed(&m.finished)
	default:
		m.feed(GateSet{Subscribed: s.subscribed})
	}
}

// BenchmarkCore measures the complete path of a job through the core: score,
// choose a slot, reserve, claim, send, finish, forget, release the slot, and a
// share of the fetches.
func BenchmarkCore(b *testing.B) {
	const types, batch = 1000, 10
	for _, f := range []struct{ slots, sets int }{
		{10, 2000}, {1_000, 2000}, {100_000, 2000},
		{100_000, 100_000}, // nearly every slot with a set of its own
	} {
		b.Run(fmt.Sprintf("slots=%d/types=%d/sets=%d", f.slots, types, f.sets), func(b *testing.B) {
			m := newSaturatedCore(f.slots, types, f.sets, batch)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m.placed = 0
			b.ReportAllocs()
			b.ResetTimer()
			for m.placed < b.N {
				m.turn()
			}
			b.StopTimer()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(m.placed)/b.Elapsed().Seconds(), "placements/s")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(m.placed), "allocs/placement")
		})
	}
}

// After a warm-up the core needs memory for the effect of each statement, and for no job.
func TestDecisionsDoNotAllocate(t *testing.T) {
	for _, slots := range []int{1000, 4096} {
		m := newSaturatedCore(slots, 100, 200, 10)
		for range 2 * slots {
			m.turn()
		}
		m.placed = 0
		allocs := testing.AllocsPerRun(200, m.turn)
		require.Positive(t, m.placed)
		require.LessOrEqual(t, allocs, 4., "a fetch, a claim and a finish, sometimes two, for %d slots", slots)
	}
}
