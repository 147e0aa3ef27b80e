package controller

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron/crontest"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestest"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// year is a simulation of dispatchers that use the same tables for a long time.
type year struct {
	extent
	j          *judge
	rng        *rand.Rand
	tables     *schedulestest.Tables
	offset     atomic.Int64 // nanoseconds from the clock of the bubble to the database clock
	hosts      []*host
	lastID     int32           // of a dispatcher
	controller int32           // id
	heard      time.Time       // last heartbeat of the controller
	pool       []crontest.Case // what cron schedules run at
	ids        []int64         // of schedules that exist
	running    ends            // jobs
	release    int             // version of the application

	kills, pauses, edits, outages, takeovers, starts int
}

// end is when a job ends.
type end struct {
	at  time.Time
	job int64
}

// ends are ordered by time.
type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, k int) bool { return e[i].at.Before(e[k].at) }
func (e ends) Swap(i, k int)      { e[i], e[k] = e[k], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// host is a dispatcher.
type host struct {
	id      int32 // of its process
	founder int32
	known   role
	y       *year
	rng     *rand.Rand // of its statements
	c       *Controller
	runner  *background.Runner
	stop    context.CancelFunc
	ended   chan struct{}
	heard   time.Time // last heartbeat
	down    time.Time // not running until then
	stopped atomic.Int64
}

// yearLease is the lease of the dispatchers, in which they send at least two heartbeats.
const yearLease = 30 * time.Second

// clock is the database clock.
func (y *year) clock() time.Time { return time.Now().Add(time.Duration(y.offset.Load())).UTC() }

// faulty sends the statements of a host.
type faulty struct {
	Table
	h *host
}

var errFault = errors.New("conn closed")

// before waits while the process is stopped, and fails in some cases.
func (f faulty) before(ctx context.Context) error {
	if rest := time.Until(time.Unix(0, f.h.stopped.Load())); rest > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest):
		}
	}
	if f.h.rng.IntN(200) == 0 {
		return errFault
	}
	return nil
}

// after returns the error of an answer that is lost in some cases.
func (f faulty) after() error {
	if f.h.rng.IntN(200) == 0 {
		return errFault
	}
	return nil
}

func (f faulty) Load(ctx context.Context, after int64) ([]schedulestore.Row, error) {
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	return f.Table.Load(ctx, after)
}

func (f faulty) Edits(ctx context.Context, again []int64) (edited map[int64]*schedulestore.Row, more bool, err error) {
	if err := f.before(ctx); err != nil {
		return nil, false, err
	}
	edited, more, _ = f.Table.Edits(ctx, again) // the fake returns no error
	return edited, more, f.after()
}

func (f faulty) Make(ctx context.Context, ticks []schedule.Tick) ([]contract.MadeTick, error) {
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	made, _ := f.Table.Make(ctx, ticks)
	return made, f.after()
}

func (f faulty) LastRuns(ctx context.Context, ids []int64) ([]schedule.Run, error) {
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	return f.Table.LastRuns(ctx, ids)
}

func (f faulty) StartQueued(ctx context.Context, ids []int64) ([]schedulestore.Started, error) {
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	started, _ := f.Table.StartQueued(ctx, ids)
	return started, f.after()
}

// start starts the process of a host. Its founder is that of a process that is alive on another host.
func (h *host) start() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	y := h.y
	y.lastID++
	h.stop, h.ended, h.id, h.founder = stop, ended, y.lastID, y.lastID
	for _, other := range y.hosts {
		if other != h && time.Since(other.heard) < yearLease {
			h.founder = other.founder
		}
	}
	if h.founder == h.id {
		y.starts++
	}
	y.tables.Join(h.id, h.founder)
	h.known = role{strconv.Itoa(int(h.founder)), strconv.Itoa(y.release)}
	id := h.id
	h.c = New(Config{
		Table: func(term int64) Table {
			var table Table = schedulestest.Controller{Tables: y.tables, Dispatcher: id, Term: term}
			if y.double != nil {
				table = y.double(table)
			}
			return faulty{table, h}
		},
		WorkerTypes: func(context.Context) ([]string, error) { return nil, nil }, AppVersion: h.known.version,
		Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	runner := background.New(ignore{}, h.c.Services()...)
	h.runner, h.c.Wake = runner, runner.Wake
	go func() {
		defer close(ended)
		runner.Run(ctx)
	}()
}

// kill ends the process of a host for a while.
func (h *host) kill(rest time.Duration) {
	if h.c == nil {
		return
	}
	h.stop()
	<-h.ended
	h.c, h.down = nil, time.Now().Add(rest)
	h.stopped.Store(0)
	if h.y.rng.IntN(2) == 0 { // a process on the same host declares it lost
		h.heard = time.Time{}
		if h.y.controller == h.id {
			h.y.heard = time.Time{}
		}
	}
}

// beat sends a heartbeat. The first host that finds the controller silent becomes the controller.
func (h *host) beat() {
	y, now := h.y, time.Now()
	switch {
	case now.Before(h.down) || now.UnixNano() < h.stopped.Load():
		return
	case h.c == nil:
		h.start()
	}
	h.heard = now
	if y.controller != h.id && now.Sub(y.heard) > yearLease {
		y.controller = h.id
		y.j.roles[y.tables.Term()+1] = h.known
		y.tables.Elect(h.id)
		y.takeovers++
	}
	b := background.Beat{Clock: y.clock(), Read: now}
	if y.tables.Edited() {
		b.Found = contract.EditsWait
	}
	if y.controller == h.id {
		b.Term, y.heard = y.tables.Term(), now
	}
	h.runner.Beat(b)
}

// works reports whether a controller works.
func (y *year) works() bool {
	return slices.ContainsFunc(y.hosts, func(h *host) bool {
		return h.id == y.controller && h.c != nil && time.Now().UnixNano() >= h.stopped.Load()
	})
}

// round lets some time pass.
func (y *year) round() {
	works, pause := y.works(), time.Second+time.Duration(y.rng.Int64N(int64(yearLease/2)))
	<-time.After(pause)
	if works {
		y.j.served += pause
	}
	for len(y.running) > 0 && !y.running[0].at.After(time.Now()) {
		y.end(heap.Pop(&y.running).(end).job)
	}
	for _, h := range y.hosts {
		h.beat()
	}
	y.listen()
}

// end ends a job, unless it has ended.
func (y *year) end(job int64) {
	if !y.tables.End(job, y.clock()) {
		return
	}
	if h := y.hosts[job%int64(len(y.hosts))]; h.c != nil { // it ran the job
		h.c.Ended()
	}
}

// lengths of the runs of a schedule.
var lengths = [...]time.Duration{time.Second, time.Minute, 10 * time.Minute, 30 * time.Minute}

// listen passes the changes of the tables to the judge, and runs jobs. The lengths do not depend on
// the order in which jobs start.
func (y *year) listen() {
	for _, e := range y.tables.Log() {
		y.j.hear(&e)
		rng := rand.New(rand.NewPCG(uint64(e.Schedule), uint64(e.At.UnixNano())))
		switch e.Change {
		case schedulestest.Started:
			length := lengths[e.Schedule%int64(len(lengths))]
			heap.Push(&y.running, end{e.At.Add(length/8 + time.Duration(rng.Int64N(int64(2*length)))), e.Job})
		case schedulestest.Cancelled:
			heap.Push(&y.running, end{e.At.Add(time.Duration(rng.Int64N(int64(20 * time.Second)))), e.Job})
		default:
		}
	}
}

// disturb injects a fault or an edit into some rounds. There are about 10,000 rounds a day.
func (y *year) disturb() {
	h := y.hosts[y.rng.IntN(len(y.hosts))]
	switch n := y.rng.IntN(100_000); {
	case n < 400:
		h.kill(time.Duration(y.rng.Int64N(int64(10 * time.Minute))))
		y.kills++
	case n < 800:
		h.stopped.Store(time.Now().Add(time.Duration(y.rng.Int64N(int64(3 * time.Minute)))).UnixNano())
		y.pauses++
	case n < 820:
		by := time.Hour
		if y.offsetHours() > 0 || y.offsetHours() == 0 && y.rng.IntN(2) == 0 {
			by = -time.Hour
		}
		y.offset.Add(int64(by))
		y.j.jumps = append(y.j.jumps, jump{time.Now(), y.clock(), by})
	case n < 822:
		rest := time.Duration(y.rng.Int64N(int64(30 * time.Hour)))
		for _, h := range y.hosts {
			h.kill(rest)
		}
		y.outages++
	case n < 825:
		y.release++
	case n < 2000:
		y.edit()
		if y.rng.IntN(2) == 0 && h.c != nil {
			h.runner.Wake(contract.EditsMade)
		}
		y.edits++
	}
}

// offsetHours returns by how many hours the database clock is wrong.
func (y *year) offsetHours() (hours int) {
	for _, j := range y.j.jumps {
		hours += int(j.by / time.Hour)
	}
	return hours
}

// insert inserts a schedule.
func (y *year) insert() {
	s := contract.SchedulePlan{
		Name:        "s",
		Kind:        contract.Cron,
		TimeZone:    "UTC",
		CatchUp:     contract.Duration([]time.Duration{0, time.Hour, 24 * time.Hour}[y.rng.IntN(3)]),
		CatchUpMost: []int{0, 1, 5, 1000}[y.rng.IntN(4)],
	}
	switch y.rng.IntN(20) {
	case 0, 1:
		s.Kind = contract.Interval
	case 2, 3:
		s.Kind = contract.Startup
	case 4:
		s.Kind = contract.StartupWorker
	}
	y.change(&s)
	policy := []string{contract.Skip, contract.QueueOne, contract.QueueAll, contract.CancelOther, contract.AllowAll}[y.rng.IntN(5)]
	y.ids = append(y.ids, y.tables.Insert(s, policy))
}

// change changes when a schedule runs.
func (y *year) change(s *contract.SchedulePlan) {
	switch s.Kind {
	case contract.Cron:
		c := &y.pool[y.rng.IntN(len(y.pool))]
		s.Spec, s.TimeZone = c.Expr, c.Zone.String()
	case contract.Interval:
		s.Every = contract.Duration([]time.Duration{10 * time.Minute, time.Hour, 5 * time.Hour, 26 * time.Hour}[y.rng.IntN(4)])
	case contract.Startup:
		s.Once = []string{contract.OncePerStart, contract.OncePerVersion, contract.OnceEver}[y.rng.IntN(3)]
	}
}

// edit edits a schedule.
func (y *year) edit() {
	at := y.rng.IntN(len(y.ids))
	id := y.ids[at]
	switch y.rng.IntN(6) {
	case 0:
		y.tables.Delete(id)
		y.ids = slices.Delete(y.ids, at, at+1)
		y.insert()
	case 1, 2:
		y.tables.Update(id, func(s *contract.SchedulePlan) { s.Paused = !s.Paused })
	case 3:
		y.tables.Update(id, func(s *contract.SchedulePlan) { s.CatchUpMost = y.rng.IntN(3) })
	default:
		y.tables.Update(id, y.change)
	}
}

// extent is the extent of a simulation.
type extent struct {
	days, schedules, zones int
	missing                schedulestest.Safeguard
	double                 func(Table) Table // takes the place of the table, or nil
}

// newYear generates the occasions and the schedules.
func newYear(t *testing.T, e extent) *year {
	t.Helper()
	y := &year{extent: e, rng: rand.New(rand.NewPCG(1, 7))}
	// 20 March to 2 April: many clocks change.
	y.offset.Store(int64(time.Until(time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC))))
	y.tables = schedulestest.New(y.clock)
	y.tables.Missing = e.missing
	from := y.clock().Add(-3 * time.Hour)
	all := crontest.Zones()
	for i, z := range y.rng.Perm(len(all))[:e.zones] {
		zone, err := time.LoadLocation(all[z])
		require.NoError(t, err)
		for k, c := range crontest.Long(zone, from, from.AddDate(0, 0, e.days+3), 2*e.schedules/e.zones, uint64(i)) {
			if _, err := cron.Parse(c.Expr); err == nil && len(c.Want) > 0 && (len(c.Want) < 40*e.days || k%8 == 0 && len(c.Want) < 400*e.days) {
				y.pool = append(y.pool, c)
			}
		}
	}
	y.j = newJudge(y.pool)
	for range e.schedules {
		y.insert()
	}
	for id := range uint64(3) {
		y.hosts = append(y.hosts, &host{y: y, rng: rand.New(rand.NewPCG(id, 8))})
	}
	return y
}

// simulate simulates the days and returns a line of figures.
func simulate(t *testing.T, e extent) (v verdict, line string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		y := newYear(t, e)
		for end := time.Now().AddDate(0, 0, e.days); time.Now().Before(end); {
			y.disturb()
			y.round()
		}
		for _, h := range y.hosts {
			h.down = time.Time{}
			h.stopped.Store(0)
		}
		for range 40 {
			y.round()
		}
		synctest.Wait()
		y.listen()
		y.j.finish(time.Now(), y.clock())
		for _, h := range y.hosts {
			h.kill(0)
		}
		v = y.j.verdict
		line = fmt.Sprintf(
			"schedules: simulated_days=%d schedules=%d zones=%d %s runs=%v missed=%d queued=%d skipped=%d cancels=%d kills=%d "+
				"pauses=%d jumps=%d outages=%d starts=%d edits=%d takeovers=%d",
			e.days,
			e.schedules, e.zones, v.failures(), v.runs, v.missed, v.queued, v.skipped, v.cancels, y.kills, y.pauses,
			len(y.j.jumps), y.outages, y.starts, y.edits, y.takeovers,
		)
	})
	return v, line
}

// Kills, stops, jumps of the database clock by an hour, outages, failed statements, lost answers
// and edits make no occasion run twice, lose none outside of catch_up, and break no overlap policy.
// An enumeration that shares no code with package cron says what the occasions are. SCHEDULES=full
// simulates a year. The overlap policy of a schedule is not edited.
func TestSimulatedYear(t *testing.T) {
	t.Parallel()
	e := extent{days: 10, schedules: 100, zones: 8}
	if os.Getenv("SCHEDULES") == "full" {
		e = extent{days: 365, schedules: 1000, zones: 40}
	}
	v, line := simulate(t, e)
	t.Log(line)
	require.Equal(t, none, v.failures(), line)
	require.Greater(t, v.runs[contract.Cron], e.days*e.schedules/4, line)
	require.Greater(t, v.runs[contract.Interval], e.days*e.schedules/20, line)
	require.Greater(t, v.runs[contract.Startup], e.schedules/10, line)
	require.Empty(t, v.runs[contract.StartupWorker], line)
	for _, n := range []int{v.missed, v.queued, v.skipped, v.cancels} {
		require.NotZero(t, n, line)
	}
}
