package sim

import (
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

const maxTypes = 8

// A world is one simulated cluster: the table, hosts with one dispatcher each,
// workers, producers, callers, and the random source.
type world struct {
	opt       Options
	durations random // of expected durations
	learned   map[learnedBy]contract.Durations
	faults    Faults // faults that may occur in this world
	scale     scale
	detach    detachment
	remote    remote
	rows      hardRows
	keys      keyed
	joins     joined
	random    random
	now       moment
	queue     queue
	events    int
	hash      uint64
	// exactHostClocks limits the fault Clocks to the database clock.
	exactHostClocks bool
	stats           Stats
	broken          *Violation

	hosts      []*host
	workers    []*worker
	conns      []*conn
	executions executions
	table      *claimfake.Table
	postgres   postgres
	jobs       []job   // by id - 1
	runs       []int16 // hosts of the runs of dispatchers, by run - 1
	open       int     // rows that are not final, uncommitted ones included
	statements statements
	insertions []insertion
	judge      judge

	healing         bool // no new faults and no new jobs; every job must end
	healedAt        moment
	sampledAt       moment // when sample last ran
	progress        moment // when a row last ended
	expireCallersAt moment // when expireCallers runs next
	typeNames       [maxTypes]string
	typeSets        [][]string // type names, by set number
	setMasks        []uint32   // types as bits, by set number
}

// scale holds the sizes and times that the seed determines.
type scale struct {
	types          int
	priorities     []dispatcherd.Priority
	jobMin         moment // bounds of the duration of an execution
	jobMax         moment
	insertGap      moment // mean time between two inserts of a producer
	callGap        moment // mean time between two requests to one dispatcher
	returning      int64  // executions of 10,000 that return their job unfinished
	failing        int64  // executions of 10,000 that fail
	limited        int64  // jobs of 10,000 that have their own timeout
	durable        int64  // jobs of 10,000 that are durable requests, which have a deadline
	bulk           int64  // inserts of 10,000 that are large
	future         int64  // inserts of 10,000 that are due later
	cancelGap      moment
	faultGap       moment
	lease          moment
	heartbeat      moment
	grace          moment
	timeout        moment // after which a client gives up a statement
	limit          moment // after which the server cancels a statement
	silenceTimeout moment // after which a suspended worker counts as dead
	misreported    int64  // reports of 10,000 that are repeated or concern another attempt
	keepRunning    bool   // handlers continue when the connection is lost
	claims         int    // maximal claims in flight
	finishes       int    // maximal finishes in flight
	crashes        int    // crashes after which a job is quarantined
}

// newWorld returns a world with its first tasks planned.
func newWorld(opt Options) *world {
	w := &world{opt: opt.withDefaults()}
	w.random.pcg = *rand.NewPCG(opt.Seed, 0x5eed)
	w.executions.free = -1
	w.statements.free = -1
	w.postgres.offset = epoch
	w.table = claimfake.NewTable(observer{w})
	w.table.Skip = skips[opt.Break]
	w.pickFaults()
	hosts := opt.Dispatchers
	if hosts == 0 {
		hosts = 1 + int(w.random.below(maxHosts))
	}
	w.pickScale()
	w.pickDetachment()
	w.pickRemote()
	w.pickRows()
	w.pickKeys()
	w.pickJoins()
	w.pickExpected()
	slots := 0
	for i := range hosts {
		w.hosts = append(w.hosts, &host{world: w, id: int16(i)})
		w.plan(task{at: moment(w.random.below(int64(50 * millisecond))), kind: hostStart, who: int16(i)})
		for range 1 + w.random.below(3) {
			slots += w.addWorker(int16(i))
		}
	}
	w.pickPace(slots, hosts)
	w.plan(task{at: second / 10, kind: producerTurn})
	w.plan(task{at: second / 5, kind: producerCancel})
	w.plan(task{at: second / 2, kind: faultTurn})
	w.plan(task{at: second, kind: sampleTurn})
	if w.detach.window > 0 {
		w.plan(task{at: second / 2, kind: detachedTurn})
	}
	if w.remote.keep > 0 {
		w.plan(task{at: second / 2, kind: networkTurn})
	}
	if w.rows.gap > 0 {
		w.plan(task{at: second / 2, kind: rowTurn})
	}
	return w
}

// pickFaults selects the faults of this world from the permitted ones. A world
// with few faults finds defects that a world with all faults hides.
func (w *world) pickFaults() {
	w.faults = w.opt.Faults
	if w.opt.Every {
		return
	}
	share := w.random.between(1, 10)
	for f := Faults(1); f <= Late<<1; f <<= 1 { // one draw more than there are faults, so that existing seeds keep their worlds
		if w.random.below(10) >= share {
			w.faults &^= f &^ detachFaults
		}
	}
}

func (w *world) pickScale() {
	d := &w.random
	s := &w.scale
	s.types = int(d.between(1, maxTypes))
	for t := range s.types {
		w.typeNames[t] = fmt.Sprintf("type-%d", t)
	}
	s.priorities = []dispatcherd.Priority{0, 5, 10}
	if d.below(3) == 0 {
		s.priorities = []dispatcherd.Priority{0, 1, 2, 3, 7, 9, 10}
	}
	s.jobMin = millisecond / 2
	s.jobMax = []moment{4, 40, 200, 1600}[d.below(4)] * millisecond
	s.returning = 100
	s.failing = []int64{0, 200, 2000}[d.below(3)]
	s.limited, s.durable, s.misreported = 200, 200, 20
	s.bulk = []int64{0, 100, 1000}[d.below(3)]
	s.future = []int64{0, 500, 5000}[d.below(3)]
	s.cancelGap = []moment{second / 20, second / 2, 100 * second}[d.below(3)]
	s.faultGap = []moment{second / 10, second / 2, 2 * second}[d.below(3)]
	s.lease, s.heartbeat = 2*second, second/4
	s.grace = []moment{second / 10, 2 * second}[d.below(2)]
	s.timeout, s.limit = second, second*4/5
	s.silenceTimeout = []moment{second / 5, second}[d.below(2)]
	s.keepRunning = d.below(2) == 0
	s.claims = 1 + int(d.below(2))*int(d.below(4)) // production has 4 and 2
	s.finishes = (s.claims + 1) / 2
	s.crashes = []int{1, 3, 3, 1000}[d.below(4)]
}

// pickPace sets the rates of producers and callers, so that together they offer
// between 25 % and 150 % of the capacity of the slots.
func (w *world) pickPace(slots, hosts int) {
	s := &w.scale
	mean := s.jobMin + (s.jobMax-s.jobMin)/4
	load := []int64{25, 60, 95, 150}[w.random.below(4)] // percent
	perSecond := int64(slots) * int64(second/mean) * load / 100
	perTurn := int64(2) + s.bulk*25/10_000
	s.insertGap = max(millisecond/4, moment(int64(second)*perTurn/max(perSecond, 1)))
	s.callGap = []moment{s.insertGap * 8, s.insertGap * 2, 10 * second}[w.random.below(3)] * moment(hosts)
}

// set returns the number of a set of types.
func (w *world) set(mask uint32) int16 {
	for i, m := range w.setMasks {
		if m == mask {
			return int16(i)
		}
	}
	var names []string
	for t := range w.scale.types {
		if mask&(1<<t) != 0 {
			names = append(names, w.typeNames[t])
		}
	}
	w.setMasks = append(w.setMasks, mask)
	w.typeSets = append(w.typeSets, names)
	return int16(len(w.setMasks) - 1)
}

func (w *world) plan(t task) { w.queue.push(t) }

func (w *world) has(f Faults) bool { return w.faults&f != 0 && !w.healing }

// wrongHostClocks reports whether the clocks of hosts run fast or slow and jump.
func (w *world) wrongHostClocks() bool { return w.faults&Clocks != 0 && !w.exactHostClocks }

// violate records the first violation. The run ends with it.
func (w *world) violate(format string, args ...any) {
	if w.broken == nil {
		w.broken = &Violation{Event: w.events, At: w.now.duration(), What: fmt.Sprintf(format, args...)}
	}
}

// config returns the configuration of a dispatcher: the limits of production
// with short times, because a world lasts seconds to minutes.
func (w *world) config(h *host) actor.Config {
	cfg := actor.DefaultConfig()
	cfg.Weights = w.weights()
	cfg.Retry = timing.Backoff{Base: 20 * millisecond.duration(), Max: second.duration()}
	cfg.RetryStatement = timing.Backoff{Base: 10 * millisecond.duration(), Max: (second / 2).duration()}
	cfg.Poll = (second / 2).duration()
	if w.opt.NoPoll {
		cfg.Poll = (1_000_000 * second).duration()
	}
	cfg.PollUnsubscribed = (second / 10).duration()
	cfg.Patience = (second / 20).duration()
	cfg.Limits.Claims, cfg.Limits.Finishes = w.scale.claims, w.scale.finishes
	cfg.LaneLength = 64
	cfg.Limits.Requests = 64
	cfg.Limits.Unfinished = 500
	cfg.Limits.ClaimBatch = 40
	cfg.Limits.FinishBatch = 40
	cfg.Limits.Crashes = w.scale.crashes
	if h.smallSteps() {
		cfg.Limits.StepWork = 40
	}
	cfg.Resume, cfg.RemoteResume = w.detach.window.duration(), w.remote.keep.duration()
	if w.detach.shortGrace {
		cfg.CancelGrace = max(5*millisecond, w.scale.jobMax/8).duration()
	}
	cfg.Seed = [2]uint64{w.random.pcg.Uint64(), uint64(h.incarnation)<<16 | uint64(h.id)}
	return cfg
}

// Run simulates Steps events with faults, then heals the world and waits until
// every job has ended. It stops at the first violation.
func Run(opt Options) Result { return newWorld(opt).run() }

// run simulates the world until it ends.
func (w *world) run() Result {
	for w.broken == nil {
		if !w.healing && w.events >= w.opt.Steps {
			w.heal()
		}
		if w.healing && w.events&127 == 0 && w.complete() {
			break
		}
		w.next()
	}
	for _, h := range w.hosts {
		h.admission.exit()
		h.settlement.exit()
	}
	w.stats.Jobs = len(w.jobs) - w.stats.Refused
	return Result{
		Events: w.events, Elapsed: w.now.duration(), Hash: w.hash, Stats: w.stats, Violation: w.broken,
	}
}

// next executes the next task.
func (w *world) next() {
	t := w.queue.pop()
	w.now = t.at
	w.events++
	if t.kind < lastOfHost {
		h := w.hosts[t.who]
		switch {
		case h.incarnation != t.incarnation:
		case h.stopped:
			h.inbox = append(h.inbox, t)
		default:
			h.do(&t)
		}
		return
	}
	w.do(&t)
}

// do executes a task that does not belong to the process of a dispatcher.
func (w *world) do(t *task) {
	switch t.kind {
	case workerRead:
		w.readAtWorker(w.conns[t.arg])
	case executionEnd:
		w.endExecution(t.arg, t.incarnation)
	case statementAt:
		w.proceed(t.arg, t.incarnation)
	case statementLate:
		w.statementTimeout(t.arg, t.incarnation)
	case producerTurn:
		w.produce()
	case producerCommit:
		w.commit(t.arg)
	case producerJoin:
		w.produceStructure()
	case producerSeal:
		w.sealBatch(dispatcherd.JobID(t.arg))
	case producerCancel:
		w.cancelSome()
	case faultTurn:
		w.fault()
	case detachedExpiry:
		w.expireDetached(t.arg, t.incarnation)
	case detachedTurn:
		w.disturbDetached()
	case rowTurn:
		w.disturbRow()
	case rowRepair:
		w.repairRow(dispatcherd.JobID(t.arg))
	case networkTurn:
		w.disturbNetwork()
	case networkRepair:
		w.hosts[t.who].repair()
	case postgresUp:
		w.restorePostgres(t.incarnation)
	case sampleTurn:
		w.sample()
	case hostStart:
		w.hosts[t.who].start()
	case hostContinue:
		w.hosts[t.who].resume()
	default:
		w.workers[t.who].do(t)
	}
}

// random is the only source of randomness of a world. PCG is fully specified
// and the functions use integer arithmetic only, so a seed gives the same world
// on every platform.
type random struct{ pcg rand.PCG }

// below returns a number from 0 to n-1, n ≥ 1.
func (d *random) below(n int64) int64 {
	high, _ := bits.Mul64(d.pcg.Uint64(), uint64(n))
	return int64(high)
}

// between returns a number from a to b, both included.
func (d *random) between(a, b int64) int64 { return a + d.below(b-a+1) }

// chance reports true with a probability of n in 10,000.
func (d *random) chance(n int64) bool { return n > 0 && d.below(10_000) < n }

// span returns a moment from a to b. It is the product of two draws, so short
// ones are more frequent.
func (d *random) span(a, b moment) moment {
	return a + moment(d.below(d.below(int64(b-a)+1)+1))
}

// mix adds a number to a hash.
func mix(h, v uint64) uint64 {
	high, low := bits.Mul64(h^v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return high ^ low
}
