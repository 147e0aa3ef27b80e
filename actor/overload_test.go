package actor

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// overloadedLoop is a running loop whose callers need three times its capacity.
// Statements take 2 ms and jobs take one second. The worker ignores cancels.
type overloadedLoop struct {
	actor *Actor
	began time.Time

	mu      sync.Mutex
	table   *table
	callers map[dispatcherd.JobID]time.Time // deadlines of waiting requests
	rows    map[dispatcherd.JobID]time.Time // arrivals of waiting rows
	ends    map[effect.AnswerKind]int
	latest  time.Duration // longest delay of an answer after its deadline
	longest time.Duration // a row waited
	started int           // rows
}

const (
	overloadSlots     = 4
	overloadService   = time.Second
	overloadStatement = 2 * time.Millisecond
	overloadLoad      = 3
)

func startOverload() *overloadedLoop {
	c := &overloadedLoop{
		began: time.Now(), table: newTable(),
		callers: map[dispatcherd.JobID]time.Time{}, rows: map[dispatcherd.JobID]time.Time{}, ends: map[effect.AnswerKind]int{},
	}
	c.actor = NewActor(New(DefaultConfig()), nil)
	c.actor.Start(c)
	ev := Registered{Session: 1, Worker: "w"}
	for i := range overloadSlots {
		ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(i + 1), Number: int32(i), Types: []string{"pdf"}})
	}
	c.actor.Order(ev)
	return c
}

// Perform implements Performer.
func (c *overloadedLoop) Perform(fx []effect.Effect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range kept(fx) {
		switch e := e.(type) {
		case *effect.Fetch, *effect.Claim, *effect.Finish, *effect.SetGate:
			time.AfterFunc(overloadStatement, func() { c.actor.Result(c.statement(e)) })
		case *effect.Send:
			if at, row := c.rows[e.Job]; row {
				delete(c.rows, e.Job)
				c.started++
				c.longest = max(c.longest, time.Since(at))
			}
			time.AfterFunc(overloadService, func() {
				c.actor.Order(Released{Session: 1, Results: []Result{{Job: e.Job, Attempt: e.Attempt, OK: true}}})
			})
		case *effect.Answer:
			c.answered(e)
		}
	}
}

func (c *overloadedLoop) answered(e *effect.Answer) {
	deadline, waits := c.callers[e.Job]
	if !waits {
		panic("a caller was answered twice")
	}
	delete(c.callers, e.Job)
	c.ends[e.Kind]++
	c.latest = max(c.latest, time.Since(deadline))
	if e.Kind == effect.AnswerLate && time.Until(deadline) > time.Millisecond { // the loop's clock has a resolution of one millisecond
		panic("a caller was told too early that its deadline had passed")
	}
}

// statement executes a statement when its 2 ms are over.
func (c *overloadedLoop) statement(e effect.Effect) Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table.now = 1_000_000_000_000 + time.Since(c.began).Microseconds()
	switch e := e.(type) {
	case *effect.Fetch:
		return Fetched{Request: e.Request, Result: c.table.fetch(e.Request)}
	case *effect.Claim:
		return Claimed{Request: e.Request, Result: c.table.claim(1, e.Request)}
	case *effect.Finish:
		return Finished{Request: e.Request, Result: c.table.finish(1, e.Request)}
	case *effect.SetGate:
		return GateSet{Subscribed: e.Subscribed}
	}
	panic("no statement")
}

// call submits a request that must be answered at its deadline at the latest.
func (c *overloadedLoop) call(id dispatcherd.JobID, priority dispatcherd.Priority, deadline time.Duration) {
	c.mu.Lock()
	c.callers[id] = time.Now().Add(deadline)
	c.mu.Unlock()
	c.actor.Request(Requested{Job: id, Type: "pdf", Priority: priority, Deadline: deadline})
}

// insert adds a row of priority 0.
func (c *overloadedLoop) insert(id dispatcherd.JobID) {
	c.mu.Lock()
	c.table.insert(claimfake.Row{ID: id, Type: "pdf", RunAt: 1_000_000_000_000 + time.Since(c.began).Microseconds()})
	c.rows[id] = time.Now()
	c.mu.Unlock()
	c.actor.Notify()
}

// For ten minutes, rows and three times as many requests as the slots can serve
// arrive. The requests continue until the last row has started. Each row starts
// within the overtaking window. A request that is not served is answered at its
// deadline.
func TestOverloadKeepsOvertakingWindowAndDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rush, everyRow = 10 * time.Minute, 30 * time.Second
		w, bounded := scoring.Default().Window()
		require.True(t, bounded)
		c := startOverload()
		rng := rand.New(rand.NewPCG(3, 3))
		calls, rows := 0, 0
		for since := time.Duration(0); since < rush+w; since = time.Since(c.began) {
			if since < rush && since >= time.Duration(rows)*everyRow {
				rows++
				c.insert(dispatcherd.JobID(rows))
			}
			calls++
			c.call(dispatcherd.JobID(-calls), dispatcherd.Priority(rng.IntN(11)), time.Duration(5000+rng.IntN(30_000))*time.Millisecond)
			time.Sleep(time.Duration(2 * rng.Float64() * float64(overloadService) / overloadSlots / overloadLoad))
			if since > rush && c.open() == 0 {
				break
			}
		}
		require.Zero(t, c.open(), "rows that have not started")
		time.Sleep(time.Minute) // the last deadlines pass and the last jobs end
		synctest.Wait()
		c.actor.Ask(func(core *Core) { require.True(t, core.Idle()) })
		c.actor.Stop()

		require.Equal(t, rows, c.started)
		require.LessOrEqual(t, c.longest, w)
		require.Empty(t, c.callers, "callers without an answer")
		require.Equal(t, calls, c.ends[effect.AnswerDone]+c.ends[effect.AnswerLate], "%v", c.ends)
		require.Greater(t, c.ends[effect.AnswerLate], calls/2, "some requests must have expired")
		require.Less(t, c.latest, 50*time.Millisecond)
		t.Logf("%d calls: %v, the latest %v after the deadline; %d rows, the longest wait %v of %v",
			calls, c.ends, c.latest, rows, c.longest.Round(time.Second), w)
	})
}

// open counts the rows that have not started.
func (c *overloadedLoop) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.rows)
}
