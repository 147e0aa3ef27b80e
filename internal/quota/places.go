package quota

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Places limits what each user does at the same time. Each user has the same number of places, whatever the other
// users do. It is for work that ends soon, so a user without a free place waits.
type Places struct {
	each  int
	mu    sync.Mutex
	users map[string]*room // only users that have a place or wait for one
}

// room contains the places of one user.
type room struct {
	taken chan struct{} // an element for each place that is taken
	calls int           // that have a place or wait for one
}

// NewPlaces returns places of which each user has a number, at least one.
func NewPlaces(each int) *Places { return &Places{each: max(1, each), users: map[string]*room{}} }

// Enter waits for a place of a user. leave gives it back, and must be called once. If ctx ends first, Enter returns its error.
func (p *Places) Enter(ctx context.Context, user string) (leave func(), err error) {
	p.mu.Lock()
	r := p.users[user]
	if r == nil {
		r = &room{taken: make(chan struct{}, p.each)}
		p.users[user] = r
	}
	r.calls++
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.calls--; r.calls == 0 {
			delete(p.users, user)
		}
	}
	select {
	case r.taken <- struct{}{}:
		return func() {
			<-r.taken
			forget()
		}, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}

// Largest returns how many places the user with the most has or waits for.
func (p *Places) Largest() (calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.users { // order-free: the maximum
		calls = max(calls, r.calls)
	}
	return calls
}

// Processors are the places for [Parse]: half of the processors for each user, at least one. So one user that sends much
// leaves the other processors to other users and to the loop.
var Processors = NewPlaces(runtime.GOMAXPROCS(0) / 2)

// freeParse is the size of a text that is parsed without a place. Parsing it takes some microseconds, so even many
// connections that send such texts delay others little, and the frames of most workers need no place.
const freeParse = 4 << 10

// longParse is the size from which the user's processor rests after a parse as long as the parse took. It is more than a batch of usual
// frames has. So a user that sends only such texts leaves half of its processors to Postgres and to other users.
const longParse = 64 << 10

// Parse calls f, which parses a text that a user has sent. f must not wait for anything. A large text needs one of the user's
// processors, so the parsing of all its texts is charged to the user, whatever they contain.
func Parse(user string, size int, f func()) {
	if size > freeParse {
		leave, _ := Processors.Enter(context.Background(), user) // without a deadline it does not fail
		begun := time.Now()
		defer func() {
			if size > longParse {
				time.AfterFunc(time.Since(begun), leave)
			} else {
				leave()
			}
		}()
	}
	f()
}

// Refusals are the places for [Rest].
var Refusals = NewPlaces(1)

// Bounds of a rest after refusals.
const (
	restForOne = time.Millisecond
	restAtMost = 50 * time.Millisecond
	restWait   = time.Second // for the rests of the user's other connections
)

// Rest waits after a connection of a user was refused something n times. The connections of a user rest one after the other. So a user
// that repeats at once what was refused cannot use all processor time, with however many connections.
func Rest(user string, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), restWait)
	defer cancel()
	if leave, err := Refusals.Enter(ctx, user); err == nil {
		time.Sleep(min(time.Duration(n)*restForOne, restAtMost))
		leave()
	}
}

type userKey struct{}

// WithUser returns a context for the work of a user.
func WithUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// HasUser reports whether a context is for the work of a user.
func HasUser(ctx context.Context) bool { return ctx.Value(userKey{}) != nil }

// UserOf returns the user of a context. All users that are not known are "".
func UserOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
