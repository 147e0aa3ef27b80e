package actor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// world is the environment of the cores of a scenario: one table, the
// dispatchers and their workers.
type world struct {
	t           *testing.T
	table       *table
	controls    contract.Controls
	locks       map[string]*claimfake.Statement // of rows, by job
	now         timing.Instant
	dispatchers map[string]*dispatcher
	at          *dispatcher // the dispatcher that commands address
	jobs        map[string]dispatcherd.JobID
	names       map[dispatcherd.JobID]string
	nextRow     dispatcherd.JobID
	nextRequest dispatcherd.JobID
	down        bool            // Postgres refuses every statement
	printed     map[string]bool // statements that are printed even without a result
	out         strings.Builder
}

// dispatcher is one core with its statements in flight.
type dispatcher struct {
	name         string
	id           int
	core         *Core
	cfg          Config
	sessions     map[string]dispatcherd.SessionID
	workers      map[dispatcherd.SessionID]string
	types        map[dispatcherd.SessionID]int // next slot number
	nextSlot     dispatcherd.SlotID
	pending      []effect.Effect                                 // statements not yet answered
	onHold       map[string]bool                                 // names of statements that complete only by answer or lose
	read         map[*contract.FetchRequest]contract.FetchResult // results of the command read
	notListening bool                                            // notifications do not reach this dispatcher
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, table: newTable(), locks: map[string]*claimfake.Statement{}, now: 1_000,
		dispatchers: map[string]*dispatcher{},
		jobs:        map[string]dispatcherd.JobID{}, names: map[dispatcherd.JobID]string{},
		printed: map[string]bool{},
	}
	w.use("a")
	return w
}

func (w *world) use(name string) {
	d := w.dispatchers[name]
	if d == nil {
		cfg := DefaultConfig()
		cfg.Seed = [2]uint64{1, uint64(len(w.dispatchers))}
		cfg.Resume = 30 * time.Second
		cfg.Poll = time.Hour // scenarios notify explicitly; scenarios about polling change this
		d = &dispatcher{
			name: name, id: len(w.dispatchers) + 1, cfg: cfg, core: New(cfg),
			sessions: map[string]dispatcherd.SessionID{}, workers: map[dispatcherd.SessionID]string{},
			types: map[dispatcherd.SessionID]int{}, onHold: map[string]bool{},
			read: map[*contract.FetchRequest]contract.FetchResult{},
		}
		w.dispatchers[name] = d
	}
	w.at = d
}

// step gives the core an event. It queues the statements and prints the other
// effects.
func (w *world) step(ev Event) {
	d := w.at
	for _, e := range kept(d.core.Step(w.now, ev, nil)) {
		switch e := e.(type) {
		case *effect.Fetch, *effect.Claim, *effect.Resolve, *effect.Load, *effect.Adopt, *effect.Finish, *effect.Spawn, *effect.SetGate:
			d.pending = append(d.pending, e)
		default:
			w.printEffect(e)
		}
	}
	require.NoError(w.t, d.core.Check())
}

// answerAll answers statements in order until only held ones remain.
func (w *world) answerAll() {
	for range 10_000 {
		i := slices.IndexFunc(w.at.pending, func(e effect.Effect) bool { return !w.at.onHold[nameOf(e)] })
		if i < 0 {
			return
		}
		v := contract.OK
		if w.down {
			v = contract.Refused
		}
		w.answer(i, v)
	}
	w.t.Fatal("the dispatcher does not become idle")
}

// answer executes the i-th statement in flight and returns the verdict.
func (w *world) answer(i int, v contract.Verdict) {
	d := w.at
	next := d.pending[i]
	d.pending = slices.Delete(d.pending, i, i+1)
	switch e := next.(type) {
	case *effect.Fetch:
		res := contract.FetchResult{Verdict: v}
		if read, ok := d.read[e.Request]; ok {
			res = read
			delete(d.read, e.Request)
		} else if v == contract.OK {
			res = w.table.fetch(e.Request)
		}
		w.printFetch(e.Request, res)
		w.step(Fetched{Request: e.Request, Result: res})
	case *effect.Claim:
		res := contract.ClaimResult{Verdict: v}
		if v == contract.OK {
			res = w.table.claim(d.id, e.Request)
		}
		w.printClaim("claim", e.Request, res)
		w.step(Claimed{Request: e.Request, Result: res})
	case *effect.Resolve:
		res := contract.ClaimResult{Verdict: v}
		if v == contract.OK {
			res = w.table.resolve(d.id, e.Request)
		}
		w.printClaim("resolve", e.Request, res)
		w.step(Claimed{Request: e.Request, Result: res})
	case *effect.Load:
		if v != contract.OK {
			d.pending = append(d.pending, e)
			return
		}
		res := w.table.load(d.id, e.Request)
		w.printLoad(res)
		w.step(Loaded{Result: res})
	case *effect.Adopt:
		res := contract.AdoptResult{Verdict: v}
		if v == contract.OK {
			res = w.table.adopt(d.id, e.Request)
		}
		w.printAdopt(e.Request, res)
		w.step(Adopted{Request: e.Request, Result: res})
	case *effect.Finish:
		res := contract.FinishResult{Verdict: v}
		if v == contract.OK {
			res = w.table.finish(d.id, e.Request)
		}
		w.printFinish(e.Request, res)
		w.step(Finished{Request: e.Request, Result: res})
	case *effect.Spawn:
		w.printf("insert children of %s, request %d: %v", w.name(e.Request.Parent), e.Request.Number, v)
		w.step(Spawned{Request: e.Request, Result: map[contract.Verdict]contract.SpawnResult{
			contract.OK:      {IDs: []dispatcherd.JobID{91, 92}},
			contract.Refused: {Rule: dispatcherd.RuleDatabaseAnswers, Reason: "refused"},
			contract.Unknown: {Rule: dispatcherd.RuleOutcomeIsKnown, Reason: "lost"},
		}[v]})
	case *effect.SetGate:
		if w.printed["set-gate"] {
			w.printf("set gate subscribed=%t: %v", e.Subscribed, v)
		}
		w.step(GateSet{Subscribed: e.Subscribed, Verdict: v})
	}
}

// advance moves both clocks and wakes the dispatcher at its wake-up times.
func (w *world) advance(d time.Duration) {
	end := w.now + timing.Instant(d.Milliseconds())
	for {
		next := min(end, max(w.at.core.NextWake(), w.now+1))
		if next == timing.Never || next > end {
			next = end
		}
		w.table.now += int64(next-w.now) * 1000
		w.now = next
		w.step(Tick{})
		w.answerAll()
		if w.now >= end {
			return
		}
	}
}

func (w *world) printf(format string, args ...any) { fmt.Fprintf(&w.out, format+"\n", args...) }

func (w *world) name(id dispatcherd.JobID) string {
	if n, ok := w.names[id]; ok {
		return n
	}
	return strconv.FormatInt(int64(id), 10)
}

// printEffect prints an effect that is not a statement.
func (w *world) printEffect(e effect.Effect) {
	workers := w.at.workers
	switch e := e.(type) {
	case *effect.Send:
		why := ""
		if e.Mode == dispatcherd.OnDemand {
			why = fmt.Sprintf(" (%s)", termsText(e.Terms))
		}
		w.printf("send %s to %s/%d%s", w.name(e.Job), workers[e.Session], e.Number, why)
	case *effect.Cancel:
		w.printf("cancel %s at %s: %s", w.name(e.Job), workers[e.Session], e.Reason)
	case *effect.Stale:
		w.printf("stale %s attempt %d to %s", w.name(e.Job), e.Attempt, workers[e.Session])
	case *effect.NotHeld:
		w.printf("not-held %s attempt %d to %s", w.name(e.Job), e.Attempt, workers[e.Session])
	case *effect.Spawned:
		w.printf("spawned by %s, request %d, to %s: %v%s%s", w.name(e.Job), e.Number, workers[e.Session], e.Result.IDs,
			prefixed(" ", e.Result.Rule), prefixed(" - ", e.Result.Reason))
	case *effect.RejectSlots:
		w.printf("reject slots of %s: %s", workers[e.Session], e.Reason)
	case *effect.GoAway:
		w.printf("go away to %s", workers[e.Session])
	case *effect.Answer:
		w.printf("answer %s: %s%s%s", w.name(e.Job), e.Kind, prefixed(" ", string(e.Result)), prefixed(" - ", e.Reason))
	case *effect.Resume:
		w.printf("resume %s on %s/%d", w.name(e.Job), workers[e.Session], e.Number)
	case *effect.Welcome:
		w.printf("welcome to %s", workers[e.Session])
	case *effect.TurnAway:
		w.printf("turn away %s: %s", workers[e.Session], e.Reason)
	case *effect.HangUp:
		w.printf("hang up on %s: %s", workers[e.Session], e.Reason)
	case *effect.Started:
	default:
		w.t.Fatalf("unexpected effect %T", e)
	}
}

func prefixed(p, s string) string {
	if s == "" {
		return ""
	}
	return p + s
}

func (w *world) printFetch(req *contract.FetchRequest, res contract.FetchResult) {
	var lanes []string
	limit := 0
	for i := 0; i < len(req.Lanes); {
		l := req.Lanes[i]
		var ps []string
		for ; i < len(req.Lanes) && req.Lanes[i].Type == l.Type && req.Lanes[i].NonLocal == l.NonLocal; i++ {
			ps = append(ps, strconv.Itoa(int(req.Lanes[i].Priority)))
			limit = max(limit, req.Lanes[i].Limit)
		}
		name := l.Type
		if l.NonLocal {
			name = "non-local " + name
		}
		if len(ps) == priorities {
			lanes = append(lanes, name)
		} else {
			lanes = append(lanes, name+" "+strings.Join(ps, "+"))
		}
	}
	result := fmt.Sprintf("%d job(s)", len(res.Candidates))
	if res.Verdict != contract.OK {
		result = res.Verdict.String()
	}
	if len(res.Candidates) > 0 || res.Verdict != contract.OK || w.printed["fetch"] {
		what := "fetch"
		if req.Backfill {
			what = "backfill scan"
		}
		w.printf(what+" [%s] limit %d: %s", strings.Join(lanes, ", "), limit, result)
	}
}

func (w *world) printClaim(statement string, req *contract.ClaimRequest, res contract.ClaimResult) {
	for _, id := range req.IDs {
		j := w.at.core.jobs[id]
		on := "no slot"
		if j.slot != noSlot {
			s := w.at.core.slots[j.slot]
			on = fmt.Sprintf("%s/%d", s.session.worker, s.number)
		}
		result := res.Verdict.String()
		if res.Verdict == contract.OK {
			result = "lost"
			is := func(won contract.Won) bool { return won.ID == id }
			switch {
			case slices.ContainsFunc(res.Won, is):
				result = "won"
			case slices.ContainsFunc(res.Loading, is):
				result = "won without payload"
			}
		}
		w.printf("%s %s on %s: %s (%s)", statement, w.name(id), on, result, termsText(j.terms))
	}
}

func (w *world) printLoad(res contract.LoadResult) {
	for _, won := range res.Won {
		w.printf("load %s: %s", w.name(won.ID), cmp.Or(won.Unfit, "loaded"))
	}
	for _, id := range res.Lost {
		w.printf("load %s: lost", w.name(id))
	}
}

func (w *world) printAdopt(req *contract.AdoptRequest, res contract.AdoptResult) {
	for _, p := range req.Jobs {
		result := res.Verdict.String()
		if res.Verdict == contract.OK {
			result = "not available"
			if slices.ContainsFunc(res.Jobs, func(a contract.Adopted) bool { return a.ID == p.ID }) {
				result = "taken"
			} else if slices.Contains(res.Busy, p.ID) {
				result = "locked"
			}
		}
		w.printf("adopt %s attempt %d: %s", w.name(p.ID), p.Attempt, result)
	}
}

// fingerprint returns the session fingerprint, which differs for every session
// of the world.
func (d *dispatcher) fingerprint(id dispatcherd.SessionID) contract.Fingerprint {
	return contract.Fingerprint(1000*d.id+int(id)) << 16
}

func (w *world) printFinish(req *contract.FinishRequest, res contract.FinishResult) {
	for _, f := range req.Items {
		result := ""
		switch {
		case res.Verdict != contract.OK:
			result = ": " + res.Verdict.String()
		case slices.ContainsFunc(res.Deferred, func(d contract.Deferred) bool { return d.ID == f.ID }):
			result = ": deferred"
		case slices.Contains(res.Stale, f.ID):
			result = ": stale"
		case f.Outcome == contract.Retry:
			result = fmt.Sprintf(" in %v", f.Delay)
		}
		w.printf("record %s attempt %d %v%s%s", w.name(f.ID), f.Attempt, f.Outcome, result, because(&f)+prefixed(" - ", f.Error))
	}
}

// because says whose policy has delayed a job, unless it is that of the dispatcher.
func because(f *contract.Finish) string {
	if f.Placement == nil || strings.HasPrefix(f.Placement.Backoff, "backoff of the dispatcher") {
		return ""
	}
	return prefixed(" because ", f.Placement.Backoff)
}

// termsText returns a score and its terms in points, such as "5620 = base 5120 + age 0 + rarity 500 + on-demand 0". It omits a
// brevity of 0.
func termsText(t scoring.Terms) string {
	points := func(m scoring.Milli) string { return strings.TrimSuffix(fmt.Sprintf("%.3f", m.Points()), ".000") }
	text := fmt.Sprintf("%s = base %s + age %s + rarity %s + on-demand %s",
		points(t.Total()), points(t.Base), points(t.Age), points(t.Rarity), points(t.OnDemand))
	if t.Brevity != 0 {
		text += " + brevity " + points(t.Brevity)
	}
	return text
}
