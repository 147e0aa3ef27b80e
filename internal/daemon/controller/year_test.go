package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim/schedules"
	"github.com/dispatcherd/dispatcherd/claim/schedules/schedulestest"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/cron"
	"github.com/dispatcherd/dispatcherd/internal/cron/crontest"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// year is a simulation of dispatchers that use the same tables for a long time.
type year struct {
	rng    *rand.Rand
	tables *schedulestest.Tables
	offset atomic.Int64 // nanoseconds from the clock of the bubble to the database clock
	hosts  []*host
	role   *host
	pool   []crontest.Case // what schedules run at
	parts  map[int64][]part
	ids    []int64 // of schedules that exist
	jumps  []jump

	kills, pauses, edits, outages, takeovers int
}

// part is the time in which a schedule is not edited.
type part struct {
	version int64
	since   time.Time
	plan    int // index in pool; noPlan while the schedule is paused or deleted
	catchUp time.Duration
	most    int
}

const noPlan = -1

// jump is a change of the database clock.
type jump struct {
	to time.Time
	by time.Duration
}

// host is a dispatcher.
type host struct {
	id      int32
	y       *year
	rng     *rand.Rand // of its statements
	c       *Controller
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
	schedulestest.Controller
	h *host
}

var errFault = errors.New("conn closed")

// before waits while the process is stopped, and fails in some cases.
func (f faulty) before(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(time.Unix(0, f.h.stopped.Load()))):
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

func (f faulty) Load(ctx context.Context, after int64) ([]schedules.Row, error) {
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	return f.Controller.Load(ctx, after)
}

func (f faulty) Edits(ctx context.Context, applied []schedules.Edit, again []int64) ([]schedules.Edit, error) {
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	edits, _ := f.Controller.Edits(ctx, applied, again) // the fake returns no error
	return edits, f.after()
}

func (f faulty) Make(ctx context.Context, ticks []schedule.Tick) ([]contract.MadeTick, error) {
	if err := f.before(ctx); err != nil {
		return nil, err
	}
	made, _ := f.Controller.Make(ctx, ticks)
	return made, f.after()
}

// start starts the process of a host.
func (h *host) start() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	h.stop, h.ended = stop, ended
	c := New(Config{
		Table: func(term int64) Table {
			return faulty{schedulestest.Controller{Tables: h.y.tables, Dispatcher: h.id, Term: term}, h}
		},
		WorkerTypes: func(context.Context) ([]string, error) { return nil, nil }, Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	h.c = c
	go func() {
		defer close(ended)
		c.Run(ctx)
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
	if h.heard = now; y.role == nil || now.Sub(y.role.heard) > yearLease {
		y.role = h
		y.tables.Elect(h.id)
		y.takeovers++
	}
	b := Beat{Clock: y.clock(), Read: now}
	if b.Edited, b.Edits = y.tables.Edited(); y.role == h {
		b.Term = y.tables.Term()
	}
	h.c.Heartbeat(b)
}

// round lets some time pass.
func (y *year) round() {
	<-time.After(time.Second + time.Duration(y.rng.Int64N(int64(yearLease/2))))
	for _, h := range y.hosts {
		h.beat()
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
		y.jumps = append(y.jumps, jump{y.clock(), by})
	case n < 822:
		rest := time.Duration(y.rng.Int64N(int64(30 * time.Hour)))
		for _, h := range y.hosts {
			h.kill(rest)
		}
		y.outages++
	case n < 2000:
		y.edit()
		if y.rng.IntN(2) == 0 && h.c != nil {
			h.c.Notified()
		}
		y.edits++
	}
}

// offsetHours returns by how many hours the database clock is wrong.
func (y *year) offsetHours() (hours int) {
	for _, j := range y.jumps {
		hours += int(j.by / time.Hour)
	}
	return hours
}

// insert inserts a schedule.
func (y *year) insert() {
	c := &y.pool[y.rng.IntN(len(y.pool))]
	id := y.tables.Insert(contract.SchedulePlan{Name: "s", Kind: contract.Cron, Spec: c.Expr, TimeZone: c.Zone.String(),
		CatchUp: contract.Duration([]time.Duration{0, time.Hour, 24 * time.Hour}[y.rng.IntN(3)]), CatchUpMost: []int{0, 1, 5, 1000}[y.rng.IntN(4)]})
	y.ids = append(y.ids, id)
	y.note(id, slices.IndexFunc(y.pool, func(other crontest.Case) bool { return other.Expr == c.Expr && other.Zone == c.Zone }))
}

// note begins a part of a schedule.
func (y *year) note(id int64, plan int) {
	row := y.tables.Row(id)
	if list := y.parts[id]; len(list) > 0 && list[len(list)-1].version == row.Version {
		return
	}
	if row.Paused {
		plan = noPlan
	}
	y.parts[id] = append(y.parts[id], part{row.Version, row.Since, plan, time.Duration(row.CatchUp), row.CatchUpMost})
}

// edit edits a schedule.
func (y *year) edit() {
	at := y.rng.IntN(len(y.ids))
	id := y.ids[at]
	row := y.tables.Row(id)
	plan := slices.IndexFunc(y.pool, func(c crontest.Case) bool { return c.Expr == row.Spec && c.Zone.String() == row.TimeZone })
	switch y.rng.IntN(6) {
	case 0:
		y.tables.Delete(id)
		y.parts[id] = append(y.parts[id], part{version: 1 << 62, plan: noPlan})
		y.ids = slices.Delete(y.ids, at, at+1)
		y.insert()
		return
	case 1, 2:
		y.tables.Update(id, func(s *contract.SchedulePlan) { s.Paused = !s.Paused })
	case 3:
		y.tables.Update(id, func(s *contract.SchedulePlan) { s.CatchUpMost = y.rng.IntN(3) })
	default:
		plan = y.rng.IntN(len(y.pool))
		y.tables.Update(id, func(s *contract.SchedulePlan) { s.Spec, s.TimeZone = y.pool[plan].Expr, y.pool[plan].Zone.String() })
	}
	y.note(id, plan)
}

// verdict counts what the comparison with the enumerated occasions has found.
type verdict struct{ runs, missed, twice, lost int }

// judge compares the ticks of a schedule with the occasions of its parts. An occasion that was not
// yet handled when the plan was edited has no tick.
func (y *year) judge(id int64, end time.Time, v *verdict) {
	ticks, parts := y.tables.Ticks(id), y.parts[id]
	var mark time.Time
	for i, p := range parts {
		n := len(ticks)
		if i+1 < len(parts) {
			n = slices.IndexFunc(append(ticks, schedulestest.Tick{Version: 1 << 62}), func(t schedulestest.Tick) bool { return t.Version >= parts[i+1].version })
		}
		mine := ticks[:n]
		ticks = ticks[n:]
		if p.plan == noPlan {
			v.twice += len(mine)
			continue
		}
		if p.since.After(mark) {
			mark = p.since
		}
		want := after(y.pool[p.plan].Want, mark)
		for _, t := range mine {
			want = y.judgeTick(t, p, want, v)
			mark = t.Planned
		}
		if i+1 == len(parts) {
			v.lost += len(want) - len(after(want, end))
		}
	}
}

// after returns the occasions after an instant.
func after(list []time.Time, at time.Time) []time.Time {
	n, found := slices.BinarySearchFunc(list, at, time.Time.Compare)
	if found {
		n++
	}
	return list[n:]
}

// judgeTick judges a tick, given the occasions that are not handled. It returns the later ones.
func (y *year) judgeTick(t schedulestest.Tick, p part, want []time.Time, v *verdict) []time.Time {
	n, found := slices.BinarySearchFunc(want, t.Planned, time.Time.Compare)
	if !found {
		v.twice++
		return want
	}
	later := want[n+1:]
	if omitted := n + 1 - max(t.Missed, 1); omitted >= 0 {
		v.lost += omitted
	} else {
		v.twice -= omitted
	}
	if t.Missed == 0 {
		v.runs++
		return later
	}
	v.missed += t.Missed
	legal := missable(t, p, later, t.Made)
	for _, j := range y.jumps { // the controller hears of it at its next heartbeat
		if since := t.Made.Sub(j.to); since >= 0 && since < 10*time.Minute {
			legal = legal || missable(t, p, later, t.Made.Add(-j.by))
		}
	}
	if !legal {
		v.lost++
	}
	return later
}

// missable reports whether the last occasion of a missed tick may be missed at an instant.
func missable(t schedulestest.Tick, p part, later []time.Time, now time.Time) bool {
	age := now.Sub(t.Planned)
	return age > schedule.Prompt && (age >= p.catchUp || len(later)-len(after(later, now)) >= p.most)
}

// extent is the extent of a simulation.
type extent struct{ days, schedules, zones int }

// newYear generates the occasions and the schedules.
func newYear(t *testing.T, e extent) *year {
	t.Helper()
	y := &year{rng: rand.New(rand.NewPCG(1, 7)), parts: map[int64][]part{}}
	// 20 March to 2 April: many clocks change.
	y.offset.Store(int64(time.Until(time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC))))
	y.tables = schedulestest.New(y.clock)
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
	for range e.schedules {
		y.insert()
	}
	for id := range int32(3) {
		h := &host{id: id + 1, y: y, rng: rand.New(rand.NewPCG(uint64(id), 8))}
		y.hosts = append(y.hosts, h)
	}
	return y
}

// Kills, stops, jumps of the database clock by an hour, outages, failed statements, lost answers
// and edits make no occasion run twice, and lose none outside of catch_up. An enumeration that
// shares no code with package cron says what the occasions are. SCHEDULES=full simulates a year.
func TestSimulatedYear(t *testing.T) {
	e := extent{days: 15, schedules: 100, zones: 8}
	if os.Getenv("SCHEDULES") == "full" {
		e = extent{days: 365, schedules: 1000, zones: 40}
	}
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
		var v verdict
		for id := range y.parts { // order-free: sums
			y.judge(id, y.clock().Add(-time.Minute), &v)
		}
		for _, h := range y.hosts {
			h.kill(0)
		}
		line := fmt.Sprintf("schedules: simulated_days=%d schedules=%d zones=%d twice=%d lost=%d runs=%d missed=%d kills=%d pauses=%d jumps=%d outages=%d edits=%d takeovers=%d",
			e.days, e.schedules, e.zones, v.twice, v.lost, v.runs, v.missed, y.kills, y.pauses, len(y.jumps), y.outages, y.edits, y.takeovers)
		t.Log(line)
		require.Zero(t, v.twice, line)
		require.Zero(t, v.lost, line)
		require.Greater(t, v.runs, e.days*e.schedules/2, line)
		require.NotZero(t, v.missed, line)
	})
}
