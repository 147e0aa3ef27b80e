package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Performer performs effects. The loop calls the Performer, so the Performer must
// not wait for Postgres, for a socket, or for the Actor. The slice is valid only
// during the call.
type Performer interface {
	// Perform performs the effects in order.
	Perform(fx []effect.Effect)
}

// Observer is a function that the loop calls after each step and before the
// performer gets the effects. An Observer must not block and must not keep any
// argument. The Core reuses the requests of Claimed, Fetched, Finished and Adopted.
// Their contents may therefore have changed since the step received them.
type Observer func(c *Core, now timing.Instant, ev Event, fx []effect.Effect)

// Actor multiplexes events onto one goroutine, which owns the Core (article 1, "Actor
// Model"). Any goroutine may call the methods of an Actor. After Stop the methods do
// nothing.
//
// The channel of events has no buffer, so a send returns when the loop has taken the
// event. The loop therefore sees the events of one goroutine in the order of the sends.
// Otherwise the end of a session could overtake the last results of its worker, and
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

	notifications chan struct{} // capacity 1: several notifications are merged
	orders        chan Event    // all events but notifications and the results of statements
	results       chan Event    // results of statements
	questions     chan func(*Core)
	done          chan struct{}
}

// NewActor returns an Actor for a Core. The Actor receives no event before Start,
// so senders wait until Start. The observer may be nil.
func NewActor(core *Core, observe Observer) *Actor {
	return &Actor{
		core: core, observe: observe,
		started: time.Now(), timer: time.NewTimer(0),
		notifications: make(chan struct{}, 1),
		orders:        make(chan Event),
		results:       make(chan Event, 16),
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
		case <-a.notifications:
			a.step(Notified{})
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
			a.step(Tick{})
		}
	}
}

// step makes one step of the Core, calls the observer, performs the effects, and
// sets the timer.
func (a *Actor) step(ev Event) {
	began := time.Now()
	now := timing.Instant(began.Sub(a.started).Milliseconds())
	a.fx = a.core.Step(now, ev, a.fx[:0])
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

// send sends an event to the loop. If the loop has ended, send drops the event and
// returns false.
func send[E any](a *Actor, ch chan<- E, ev E) bool {
	select {
	case ch <- ev:
		return true
	case <-a.done:
		return false
	}
}

// Request submits an on-demand request. If the loop has ended, Request returns
// false, and no answer follows.
func (a *Actor) Request(ev Requested) bool { return send[Event](a, a.orders, ev) }

// Notify reports that rows may have become pending. Notify never waits: the Actor
// merges a notification with an earlier one that the loop has not read yet.
func (a *Actor) Notify() {
	select {
	case a.notifications <- struct{}{}:
	default:
	}
}

// Order sends any other event that is no result of a statement: of a session, of a caller that has
// disconnected, of an operator, of the listener or of the heartbeat.
func (a *Actor) Order(ev Event) { send(a, a.orders, ev) }

// Result returns the result of a statement: Fetched, Claimed, Adopted, Finished, Spawned
// or GateSet.
func (a *Actor) Result(ev Event) { send(a, a.results, ev) }

// Ask runs f on the loop and waits until f returns. f may read the Core. If the
// loop has ended before, Ask does not run f and returns false.
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

// Load says how busy the loop has been since Start.
type Load struct {
	// Time in which the loop handled events; an increase close to 1 s per second means that one goroutine is not
	// sufficient.
	Busy  time.Duration
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
