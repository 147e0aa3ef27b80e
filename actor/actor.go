package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Performer carries out effects. It is called from the loop: it must not wait
// for Postgres, for a socket, or for the Actor itself. The slice is valid during
// the call only.
type Performer interface {
	// Perform does what fx asks for, in order.
	Perform(fx []effect.Effect)
}

// Observer is called by the loop after each step, before the effects are
// performed. It must not block and must not keep any argument. The Core reuses
// the requests of Claimed, Fetched, Finished and Adopted, so their contents are
// not those that the step was given.
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
	fx        []effect.Effect // reused
	load      Load

	registrations chan event.Event // of sessions: Registered, Withdrew, Unregistered
	releases      chan event.Released
	requests      chan event.Requested
	notifications chan struct{}    // capacity 1: any number of them are one
	orders        chan event.Event // of operator, listener, workers and callers: drain, interrupt, weights, cancels, announced rows, reports, hang-ups
	results       chan event.Event // of statements
	questions     chan func(*Core)
	done          chan struct{}
}

// NewActor returns an Actor around a Core. It takes no event before Start; who sends one
// waits. The observer may be nil.
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

// Start runs the loop in a goroutine of its own until Stop. It is called once.
func (a *Actor) Start(performer Performer) {
	a.performer = performer
	go a.loop()
}

// loop is the only goroutine that touches the Core.
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

// step is one turn: decide, observe, perform, and set the alarm.
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

// arm sets the timer. It fires no earlier than the instant asked for: Instants
// are whole milliseconds, rounded down.
func (a *Actor) arm(next timing.Instant) {
	a.armed = next
	if next == timing.Never {
		a.timer.Stop()
		return
	}
	a.timer.Reset(time.Until(a.started.Add(time.Duration(next) * time.Millisecond)))
}

// send hands an event to the loop, or drops it when the loop has ended: then it
// returns false.
func send[E any](a *Actor, ch chan<- E, ev E) bool {
	select {
	case ch <- ev:
		return true
	case <-a.done:
		return false
	}
}

// Register tells of a session's new slots.
func (a *Actor) Register(ev event.Registered) { send[event.Event](a, a.registrations, ev) }

// Unregister tells that a session is gone.
func (a *Actor) Unregister(ev event.Unregistered) { send[event.Event](a, a.registrations, ev) }

// Withdraw takes slots off line.
func (a *Actor) Withdraw(ev event.Withdrew) { send[event.Event](a, a.registrations, ev) }

// Release passes on what a worker says about its jobs.
func (a *Actor) Release(ev event.Released) { send(a, a.releases, ev) }

// Report passes on what a worker says about jobs that go on running.
func (a *Actor) Report(ev event.Reported) { send[event.Event](a, a.orders, ev) }

// Request submits an on-demand request. False says that the loop has ended: the
// request will not be answered.
func (a *Actor) Request(ev event.Requested) bool { return send(a, a.requests, ev) }

// Abandon tells that a caller hung up.
func (a *Actor) Abandon(ev event.Abandoned) { send[event.Event](a, a.orders, ev) }

// Notify tells that rows may have become pending. It never waits: while one
// notification is unread, more of them say nothing new.
func (a *Actor) Notify() {
	select {
	case a.notifications <- struct{}{}:
	default:
	}
}

// Order passes on what an operator or the listener wants or knows: Drained,
// Interrupted, CancelRequested, Listening, or Announced.
func (a *Actor) Order(ev event.Event) { send(a, a.orders, ev) }

// Result answers a statement: Fetched, Claimed, Adopted, Finished or GateSet.
func (a *Actor) Result(ev event.Event) { send(a, a.results, ev) }

// Ask runs f on the loop, where it may look at the Core, and waits for it. It
// returns false if the loop has ended before.
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

// Load tells how busy the loop has been since the start.
type Load struct {
	Busy  time.Duration // its growth per second is the share of time in which nothing else could be decided: the one number that says whether a single owner suffices
	Steps int64
}

// Load returns it; zeros once the loop has ended.
func (a *Actor) Load() (l Load) {
	a.Ask(func(*Core) { l = a.load })
	return l
}

// Stop ends the loop and waits until it has ended.
func (a *Actor) Stop() {
	send(a, a.questions, nil) // none
	<-a.done
}
