package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Performer performs effects. The loop calls it, so it must not wait for Postgres,
// for a socket, or for the Actor. The slice is valid only during the call.
type Performer interface {
	// Perform performs the effects in order.
	Perform(fx []effect.Effect)
}

// Observer is called by the loop after each step, before the effects are performed.
// It must not block, and must not keep any argument. The Core reuses the requests
// of Claimed, Fetched, Finished and Adopted, so their contents may have changed
// since the step received them.
type Observer func(c *Core, now timing.Instant, ev event.Event, fx []effect.Effect)

// Actor multiplexes typed event channels onto one goroutine, which owns the Core
// (article 1, "Actor Model"). Its methods may be called from any goroutine. After
// Stop they do nothing.
//
// Frequent events have typed channels. Rare events share one, because each case of
// the select costs about 60 ns, twice per request.
//
// Channels that carry the events of one session, or of one caller, have no
// buffer: a send returns when the loop has taken the event, so what one
// goroutine sends through several channels is seen in that order. Without this
// the end of a session could overtake the last results of its worker, and
// finished jobs would run again.
type Actor struct {
	core      *Core
	performer Performer
	observe   Observer // may be nil
	started   time.Time
	timer     *time.Timer
	armed     timing.Instant  // when the timer fires
	fx        []effect.Effect // reused in every step
	load      Load

	registrations chan event.Event // events of sessions: Registered, Withdrew, Unregistered
	releases      chan event.Released
	requests      chan event.Requested
	notifications chan struct{}    // capacity 1: several notifications are merged
	orders        chan event.Event // events of operators, listener, workers and callers: drain, interrupt, weights, cancels, announced rows, reports, disconnects
	results       chan event.Event // results of statements
	questions     chan func(*Core)
	done          chan struct{}
}

// NewActor returns an Actor for a Core. The Actor receives no event before Start,
// so senders wait until then. The observer may be nil.
func NewActor(core *Core, observe Observer) *Actor {
	return &Actor{
		core: core, observe: observe,
		started: time.Now(), timer: time.NewTimer(0),
		registrations: make(chan event.Event),
		releases:      make(chan event.Released),
		requests:      make(chan event.Requested),
		notifications: make(chan struct{}, 1),
		orders:        make(chan event.Event),
		results:       make(chan event.Event, 16),
		questions:     make(chan func(*Core)),
		done:          make(chan struct{}),
	}
}

// Start runs the loop in a new goroutine until Stop. Call it once.
func (a *Actor) Start(performer Performer) {
	a.performer = performer
	go a.loop()
}

// loop is the only goroutine that uses the Core.
func (a *Actor) loop() {
	defer close(a.done)
	defer a.timer.Stop()
	for {
		select {
		case ev := <-a.registrations:
			a.step(ev)
		case ev := <-a.releases:
			a.step(ev)
		case ev := <-a.requests:
			a.step(ev)
		case <-a.notifications:
			a.step(event.Notified{})
		case ev := <-a.orders:
			a.step(ev)
		case ev := <-a.results:
			a.step(ev)
		case ask := <-a.questions:
			if ask == nil {
				return
			}
			ask(a.core)
		case <-a.timer.C:
			a.armed = timing.Never
			a.step(event.Tick{})
		}
	}
}

// step makes one step of the Core, calls the observer, performs the effects, and
// sets the timer.
func (a *Actor) step(ev event.Event) {
	began := time.Now()
	now := timing.Instant(began.Sub(a.started).Milliseconds())
	a.fx = a.core.Step(now, ev, a.fx[:0])
	verify(a.core)
	if a.observe != nil {
		a.observe(a.core, now, ev, a.fx)
	}
	a.performer.Perform(a.fx)
	clear(a.fx)
	if next := max(a.core.NextWake(), now+1); next != a.armed {
		a.arm(next)
	}
	a.load.Busy += time.Since(began)
	a.load.Steps++
}

// arm sets the timer. The timer fires no earlier than the given instant, because
// Instants are whole milliseconds, rounded down.
func (a *Actor) arm(next timing.Instant) {
	a.armed = next
	if next == timing.Never {
		a.timer.Stop()
		return
	}
	a.timer.Reset(time.Until(a.started.Add(time.Duration(next) * time.Millisecond)))
}

// send sends an event to the loop. If the loop has ended, it drops the event and
// returns false.
func send[E any](a *Actor, ch chan<- E, ev E) bool {
	select {
	case ch <- ev:
		return true
	case <-a.done:
		return false
	}
}

// Register reports new slots of a session.
func (a *Actor) Register(ev event.Registered) { send[event.Event](a, a.registrations, ev) }

// Unregister reports the end of a session.
func (a *Actor) Unregister(ev event.Unregistered) { send[event.Event](a, a.registrations, ev) }

// Withdraw removes slots of a session.
func (a *Actor) Withdraw(ev event.Withdrew) { send[event.Event](a, a.registrations, ev) }

// Release reports the ends of a worker's jobs.
func (a *Actor) Release(ev event.Released) { send(a, a.releases, ev) }

// Report reports progress and output of a worker's running jobs.
func (a *Actor) Report(ev event.Reported) { send[event.Event](a, a.orders, ev) }

// Request submits an on-demand request. If it returns false the loop has ended, and
// the request will not be answered.
func (a *Actor) Request(ev event.Requested) bool { return send(a, a.requests, ev) }

// Abandon reports that a caller has disconnected.
func (a *Actor) Abandon(ev event.Abandoned) { send[event.Event](a, a.orders, ev) }

// Notify reports that rows may have become pending. It never waits: while a
// notification is unread, further ones are merged with it.
func (a *Actor) Notify() {
	select {
	case a.notifications <- struct{}{}:
	default:
	}
}

// Order sends an event of an operator or of the listener: Drained, Interrupted,
// CancelRequested, Listening, or Announced.
func (a *Actor) Order(ev event.Event) { send(a, a.orders, ev) }

// Result returns the result of a statement: Fetched, Claimed, Adopted, Finished or
// GateSet.
func (a *Actor) Result(ev event.Event) { send(a, a.results, ev) }

// Ask runs f on the loop, where f may read the Core, and waits until it returns. If
// the loop has ended before, Ask returns false.
func (a *Actor) Ask(f func(*Core)) bool {
	answered := make(chan struct{})
	ask := func(c *Core) {
		defer close(answered)
		f(c)
	}
	select {
	case a.questions <- ask:
		<-answered
		return true
	case <-a.done:
		return false
	}
}

// Load says how busy the loop has been since the start.
type Load struct {
	Busy  time.Duration // its increase per second is the share of time in which no other event could be handled; a value close to 1 means that a single goroutine is not sufficient
	Steps int64
}

// Load returns the load, or zeros if the loop has ended.
func (a *Actor) Load() (l Load) {
	a.Ask(func(*Core) { l = a.load })
	return l
}

// Stop ends the loop and waits until it has ended.
func (a *Actor) Stop() {
	send(a, a.questions, nil) // nil ends the loop
	<-a.done
}
