package admission

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// history lets several dispatchers work with the same tables, with faults.
type history struct {
	*tables
	ctx        context.Context
	rng        *rand.Rand
	agents     map[int32]*agent
	runs       map[int64]execution
	faults     bool
	maxClasses int
	leader     int32
}

// execution is an execution.
type execution struct {
	agent int32
	fence int64
	until time.Time
}

// chooseFault chooses what happens to a statement.
func (h *history) chooseFault(string) (f fault) {
	if !h.faults {
		return f
	}
	switch h.rng.IntN(60) {
	case 0:
		f.refused = true
	case 1:
		f.lost = true
	case 2:
		f.locked = true
	case 3, 4:
		f.delay = time.Duration(h.rng.IntN(3000)) * time.Millisecond
	case 5, 6, 7, 8, 9:
		f.delay = time.Duration(1+h.rng.IntN(40)) * time.Millisecond
	}
	return f
}

func (h *history) class() permits.Class {
	name := func() string { return []string{"a", "b", "c", "d", "rate", "here"}[h.rng.IntN(6)] }
	keys := []string{name()}
	if h.rng.IntN(3) == 0 {
		keys = append(keys, name())
	}
	return permits.Class{
		Keys: strings.Join(keys, " ") + []string{"*all", "*2", "", "", "", ""}[h.rng.IntN(6)],
		Type: []string{"x", "x", "y"}[h.rng.IntN(3)], Priority: int16(h.rng.IntN(2)),
	}
}

// setSomeLimit edits a limit.
func (h *history) setSomeLimit() {
	key := []string{"a", "b", "c"}[h.rng.IntN(3)]
	l := permits.Limit{Key: key, Capacity: int64(2 + h.rng.IntN(4)), OnRetry: permits.OnRetry(h.rng.IntN(2))}
	if h.faults && h.rng.IntN(4) == 0 {
		l.Capacity = int64(h.rng.IntN(2))
	}
	h.setLimit(l)
}

// someAgent returns one that runs.
func (h *history) someAgent() *agent {
	for {
		if a := h.agents[1+h.rng.Int32N(3)]; a != nil {
			return a
		}
	}
}

// lead makes sure that one of the running dispatchers has the role.
func (h *history) lead() {
	if h.agents[h.leader] == nil {
		a := h.someAgent()
		h.leader = a.id
		a.elect()
	}
}

// kill ends a dispatcher. Its statements in flight may be executed later. Its rows return, and another one with its number starts.
func (h *history) kill() {
	a := h.someAgent()
	a.stop()
	h.agents[a.id] = h.start(h.ctx, a.id, h.maxClasses)
	if h.leader == a.id {
		h.leader = 0
	}
	for id, r := range h.runs { // order-free: each row returns
		if r.agent == a.id {
			delete(h.runs, id)
			h.finish(id, r.fence, 0)
		}
	}
}

// depose gives the role to another dispatcher while the former one still works.
func (h *history) depose() {
	a := h.someAgent()
	h.leader = a.id
	a.elect()
}

// claimSome lets dispatchers claim admitted rows.
func (h *history) claimSome() {
	for _, id := range h.holders() {
		a := h.someAgent()
		if h.faults && h.rng.IntN(3) == 0 {
			continue
		}
		if fence := a.begin(id); fence > 0 {
			h.runs[id] = execution{a.id, fence, time.Now().Add(time.Duration(h.rng.IntN(300)) * time.Millisecond)}
		}
	}
}

// endSome ends executions.
func (h *history) endSome() {
	for id, r := range h.runs { // order-free: an independent decision for each
		if time.Now().Before(r.until) {
			continue
		}
		delete(h.runs, id)
		outcome, again := contract.Succeeded, time.Duration(0)
		if h.faults {
			switch h.rng.IntN(8) {
			case 0:
				outcome, again = contract.Retry, time.Duration(h.rng.IntN(2000))*time.Millisecond
			case 1:
				outcome = contract.Crashed
			}
		}
		h.agents[r.agent].end(id, r.fence, outcome, again)
	}
}

// step does something random, and lets time pass.
func (h *history) step() {
	switch h.rng.IntN(40) {
	case 0, 1, 2, 3, 4, 5:
		h.insert(h.class(), 1+h.rng.IntN(3))
		if h.rng.IntN(2) == 0 {
			h.update(func() { h.notify() })
		}
	case 6:
		h.setSomeLimit()
	case 7:
		if h.rng.IntN(4) == 0 {
			h.kill()
		}
	case 8:
		if h.rng.IntN(4) == 0 {
			h.depose()
		}
	case 9: // a waiting or admitted row is cancelled
		h.update(func() {
			for id, r := range h.rows { // order-free: any
				if !r.running {
					delete(h.rows, id)
					break
				}
			}
		})
	}
	h.lead()
	h.claimSome()
	h.endSome()
	<-time.After(time.Duration(h.rng.IntN(40)) * time.Millisecond)
}

// randomHistory runs a random history and returns what the judge found.
func randomHistory(t *testing.T, seed uint64, change func(*tables)) (broken []string, admitted int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &history{
			tables: newTables(),
			ctx:    ctx,
			rng:    rand.New(rand.NewPCG(seed, 7)),
			agents: map[int32]*agent{},
			runs:   map[int64]execution{},
			faults: true,
		}
		if seed%3 == 0 {
			h.maxClasses = 4
			h.unordered = true // a class is forgotten while there is no room for it, so a later job of it may be known first
		}
		change(h.tables)
		faults := rand.New(rand.NewPCG(seed, 8))
		h.fault = func(operation string) fault { // statements of several goroutines
			own := history{rng: faults, faults: h.faults}
			return own.chooseFault(operation)
		}
		for _, l := range []permits.Limit{
			{Key: "a", Capacity: 3}, {Key: "b", Capacity: permits.Unlimited}, {Key: "rate", Capacity: permits.Unlimited, Rate: 5, Per: 700_000},
			{Key: "here", Capacity: 2, Scope: permits.Dispatcher},
		} {
			h.setLimit(l)
		}
		for id := range int32(3) {
			h.agents[id+1] = h.start(ctx, id+1, h.maxClasses)
		}
		h.lead()
		beat := time.Now()
		for range 600 {
			h.step()
			if time.Since(beat) > 500*time.Millisecond {
				beat = time.Now()
				for _, a := range h.agents { // order-free: each one
					a.beat()
				}
			}
		}
		h.drain()
		cancel()
		for _, a := range h.agents { // order-free: each one
			a.stop()
		}
		<-time.After(10 * time.Second) // statements in flight
		h.update(func() {
			h.judgeRates()
			broken, admitted = h.broken, len(h.admitted)
		})
	})
	return broken, admitted
}

// drain ends the faults, and requires that each job is admitted.
func (h *history) drain() {
	h.update(func() { h.faults = false })
	for _, key := range []string{"a", "b", "c", "d"} {
		h.setLimit(permits.Limit{Key: key, Capacity: 5})
	}
	h.setLimit(permits.Limit{Key: "here", Capacity: 5, Scope: permits.Dispatcher})
	for range 6000 {
		h.lead()
		h.claimSome()
		h.endSome()
		<-time.After(50 * time.Millisecond)
		if time.Now().Nanosecond() < 50_000_000 {
			for _, a := range h.agents { // order-free: each one
				a.beat()
			}
		}
		left := 0
		h.update(func() { left = len(h.rows) })
		if left == 0 {
			return
		}
	}
	leader := h.agents[h.leader]
	leader.stop() // its book is read
	h.update(func() {
		for _, r := range h.rows { // order-free: an error
			h.breaks("row %+v is not admitted: %+v", *r, leader.book.Explain(r.Class, r.Job))
		}
	})
}

// Several dispatchers admit, claim and end jobs while statements fail, answers are lost, statements of former
// controllers arrive late, rows are locked, dispatchers are killed and limits are edited. No key has more permits than its limit, no
// window has more starts, the jobs of a class are admitted in order, and each job is admitted. ADMISSION_HISTORIES sets
// the number of histories.
func TestRandomHistoriesKeepAllLimits(t *testing.T) {
	seeds := uint64(150)
	if n, err := strconv.ParseUint(os.Getenv("ADMISSION_HISTORIES"), 10, 64); err == nil {
		seeds = n
	} else if testing.Short() {
		seeds = 15
	}
	total := 0
	for seed := range seeds {
		broken, admitted := randomHistory(t, seed, func(*tables) {})
		require.Empty(t, broken[:min(len(broken), 3)], "seed %d", seed)
		total += admitted
	}
	require.Greater(t, total, int(seeds)*100, "admissions")
}

// The judge detects tables that let a former controller admit jobs, and tables that hide permits.
func TestJudgeDetectsMissingSafeguards(t *testing.T) {
	for name, change := range map[string]func(*tables){
		"the number of Begin is ignored": func(f *tables) { f.ignoresNumber = true },
		"Held omits rows":                func(f *tables) { f.omitsHeld = true },
	} {
		found := false
		for seed := uint64(0); seed < 200 && !found; seed++ {
			broken, _ := randomHistory(t, seed, change)
			found = len(broken) > 0
		}
		require.True(t, found, name)
	}
}
