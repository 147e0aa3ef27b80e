package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// agent is a dispatcher with its controller.
type agent struct {
	*Controller
	*background.Runner
	*tables
	id    int32
	term  int64 // 0 = another dispatcher is the controller
	alone bool  // there are no other dispatchers
	dead  int32 // it sends no heartbeat, and is not declared lost
	stop  func()
}

// ignore is an observer.
type ignore struct{}

func (ignore) Stepped(string, time.Duration, background.Outcome, error) {}

// discontinued returns a step that ends when a statement meets a cancelled context: session.send ends the goroutine.
func discontinued(
	step func(context.Context, background.Now) (time.Duration, error),
) func(context.Context, background.Now) (time.Duration, error) {
	return func(ctx context.Context, now background.Now) (wait time.Duration, err error) {
		err = context.Canceled
		done := make(chan struct{})
		go func() {
			defer close(done)
			wait, err = step(ctx, now)
		}()
		<-done
		return wait, err
	}
}

// notify delivers a notification.
func (a *agent) notify(topic contract.Topics) { a.Wake(topic) }

// ask calls f with the book between two steps.
func (a *agent) ask(f func(*permits.Book)) bool {
	return a.Between(context.Background(), ServiceName, func() { f(a.Book()) })
}

// start starts a dispatcher. It sends no heartbeat.
func (f *tables) start(ctx context.Context, id int32, maxClasses int) *agent {
	a := &agent{tables: f, id: id}
	a.Controller = New(Config{
		Wake:        a.notify,
		Table:       func(term int64) Table { return &session{tables: f, dispatcher: id, term: term} },
		Dispatcher:  func() int32 { return id },
		Announce:    func([]contract.RowNotification) {},
		Patience:    2 * time.Second,
		PerPriority: 64 * time.Second,
		MaxClasses:  maxClasses,
		Log:         zap.NewNop(),
		Metrics:     NewMetrics(prometheus.NewRegistry()),
	})
	services := a.Services()
	for i := range services {
		services[i].Step = discontinued(services[i].Step)
	}
	a.Runner = background.New(ignore{}, services...)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	a.stop = func() {
		cancel()
		<-done
	}
	return a
}

// elect makes the dispatcher the controller, and sends a heartbeat.
func (a *agent) elect() {
	a.term = a.tables.elect(a.id, func() { a.Wake(contract.KeysChanged) })
	a.beat()
}

// beat sends a heartbeat.
func (a *agent) beat() {
	var b background.Beat
	a.update(func() {
		if a.controller != a.id {
			a.term = 0
		}
		keyed := len(a.edited) > 0
		for _, r := range a.rows {
			keyed = keyed || r.fence == 0
		}
		b = background.Beat{Term: a.term, Clock: a.tables.now(), Read: time.Now()}
		if keyed {
			b.Found = contract.KeysWait
		}
		for id := int32(1); id <= 3 && !a.alone; id++ {
			if at := time.Now().UnixMicro(); id == a.dead {
				b.Others = append(b.Others, contract.Heard{ID: id, BeatAt: 1})
			} else if id != a.id {
				b.Others = append(b.Others, contract.Heard{ID: id, BeatAt: at})
			}
		}
	})
	a.Beat(b)
}

// begin claims an admitted row and reports it. It returns the fence, or 0.
func (a *agent) begin(id int64) int64 {
	fence := a.claim(id, a.id)
	if fence > 0 {
		a.Claimed([]contract.Won{{ID: dispatcherd.JobID(id), Delivery: contract.Delivery{Fence: fence}}})
	}
	return fence
}

// end records the end of a run and reports it.
func (a *agent) end(id, fence int64, outcome contract.Outcome, again time.Duration) {
	if outcome.Final() {
		again = -1
	}
	result := &contract.FinishResult{Verdict: contract.OK}
	if !a.finish(id, fence, again) {
		result.Stale = []dispatcherd.JobID{dispatcherd.JobID(id)}
	}
	a.Finished(&contract.FinishRequest{Items: []contract.Finish{{ID: dispatcherd.JobID(id), Outcome: outcome, Fence: fence}}}, result)
}

// world is one dispatcher in a synctest bubble. It is the controller.
type world struct {
	*agent
	t *testing.T
}

// run runs f with a controller that has sent its first heartbeat.
func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tab := newTables()
		w := &world{t: t, agent: tab.start(ctx, 1, 0)}
		w.elect()
		synctest.Wait()
		f(w)
		require.Empty(t, tab.broken)
		cancel()
		w.stop()
	})
}

// heard sends a heartbeat and waits until the controller has done its work.
func (w *world) heard() {
	w.beat()
	synctest.Wait()
}

// pass lets seconds pass, each with a heartbeat.
func (w *world) pass(seconds int) {
	for range seconds {
		<-time.After(time.Second)
		w.heard()
	}
}

// skip lets time pass, with few heartbeats.
func (w *world) skip(d time.Duration) {
	for range int(d / (50 * time.Second)) {
		<-time.After(50 * time.Second)
		w.heard()
	}
}

// awaitReports waits until the reports are handled.
func (w *world) awaitReports() {
	<-time.After(100 * time.Millisecond)
	synctest.Wait()
}

var k = permits.Class{Keys: "k", Type: "x"}
