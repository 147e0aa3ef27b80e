package ondemand

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// registry holds the shared requests that can be found: by id, by idempotency key
// and, until they end, by coalesce key. Lock order: registry.mu, then Shared.mu.
type registry struct {
	s     *Service
	bytes atomic.Int64 // bytes of all events and answers

	followers atomic.Int64 // number of callers of all shared requests

	mu         sync.Mutex
	byID       map[string]*Shared
	byKey      map[string]*Shared
	byCoalesce map[string]*Shared
	kept       []*Shared // ended requests, ordered by the time of their end
	closed     bool
}

func newRegistry(s *Service) *registry {
	return &registry{s: s, byID: map[string]*Shared{}, byKey: map[string]*Shared{}, byCoalesce: map[string]*Shared{}}
}

// fingerprint is a hash of a request. It distinguishes different requests with the
// same key.
func fingerprint(o *Options) [32]byte {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(o.Type), o.Payload, []byte(o.CoalesceKey), {byte(o.Priority)}, []byte(strconv.FormatBool(o.Durable))} {
		sum.Write(strconv.AppendInt(nil, int64(len(part)), 10))
		sum.Write([]byte{':'})
		sum.Write(part)
	}
	return [32]byte(sum.Sum(nil))
}

// keyEntry is the entry of an idempotency key in byKey. Each scope has its own keys.
func keyEntry(key, scope string) string {
	if key == "" {
		return ""
	}
	return scope + "\x00" + key
}

// join returns the shared request that the options belong to, or a new one, which
// the caller must submit. It counts the caller as a follower. key is the caller's
// entry.
func (g *registry) join(o *Options, key string, body *Body) (_ *Shared, fresh bool, err error) {
	mark := fingerprint(o)
	var coalesce string
	if o.CoalesceKey != "" {
		coalesce = string(mark[:]) + o.CoalesceKey
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.purgeLocked(time.Now())
	r := &Shared{owner: g, coalesce: coalesce, mark: mark, typ: o.Type, row: o.Durable, callers: 1, changed: make(chan struct{})}
	keys := []string{key}
	if old := g.byKey[key]; key != "" && old != nil {
		if old.mark != mark {
			return nil, false, problem.KeyReused.Of("the key was used for another type, payload, priority, durable or coalesce_key")
		}
		if !g.undecidedLocked(old) {
			old.attach(o.Later)
			return old, false, nil
		}
		keys = g.inheritLocked(r, old)
	} else if old := g.byCoalesce[coalesce]; coalesce != "" && old != nil {
		if err := g.makeRoomForKeyLocked(key); err != nil {
			return nil, false, err
		}
		g.name(old, key)
		old.attach(o.Later)
		return old, false, nil
	}
	if err := g.makeRoomLocked(); err != nil {
		return nil, false, err
	}
	if err := g.makeRoomForKeyLocked(key); err != nil {
		return nil, false, err
	}
	r.id, r.later, r.body = newID(), o.Later, body.move()
	g.followers.Add(1)
	g.byID[r.id] = r
	for _, key := range keys {
		g.name(r, key)
	}
	if coalesce != "" {
		g.byCoalesce[coalesce] = r
	}
	return r, true, nil
}

// setUndecided records that a request that is about to end may have inserted its
// row.
func (g *registry) setUndecided(r *Shared, row dispatcherd.JobID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.undecided = row
}

// undecidedLocked reports whether a request ended in this way.
func (g *registry) undecidedLocked(r *Shared) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.undecided != 0 && r.failure != nil
}

// inheritLocked lets r replace a request that may have inserted its row: r uses
// that row if it exists, and takes over the keys.
func (g *registry) inheritLocked(r, old *Shared) (keys []string) {
	keys = old.keys
	r.earlier, r.lateKeys = old.undecided, old.lateKeys
	g.dropLocked(old)
	if at := slices.Index(g.kept, old); at >= 0 {
		g.kept = slices.Delete(g.kept, at, at+1)
	}
	return keys
}

// name registers a request under an idempotency key, if there is one.
func (g *registry) name(r *Shared, key string) {
	if key != "" {
		g.byKey[key] = r
		r.keys = append(r.keys, key)
	}
}

// find returns a request by its id, or nil.
func (g *registry) find(id string) *Shared {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.purgeLocked(time.Now())
	return g.byID[id]
}

// close ends the requests that have not ended.
func (g *registry) close() {
	g.mu.Lock()
	g.closed = true
	var open []*Shared
	for _, r := range g.byID { // order-free: the ends are independent
		open = append(open, r)
	}
	g.mu.Unlock()
	for _, r := range open {
		r.giveUp(Answer{Kind: Cancelled, Reason: "the dispatcher stops"})
	}
}

// count returns the numbers of requests and keys that can be found.
func (g *registry) count() (requests, keys int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.byID), len(g.byKey)
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	return hex.EncodeToString(b[:])
}
