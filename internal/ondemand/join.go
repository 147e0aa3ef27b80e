package ondemand

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// This file decides which shared request a caller joins.

// fingerprint is a hash of a request. It distinguishes different requests with the
// same key.
func fingerprint(o *Request) [32]byte {
	sum := sha256.New()
	for _, part := range [][]byte{
		[]byte(o.Type), o.Payload, []byte(o.CoalesceKey), {byte(o.Priority)}, []byte(o.durability()), []byte(o.Keys),
	} {
		fmt.Fprintf(sum, "%d:", len(part))
		sum.Write(part)
	}
	return [32]byte(sum.Sum(nil))
}

// durability is what the caller has asked for. So a repeated request is the same one, whether Route made a row of it or not.
func (o *Request) durability() string {
	switch {
	case o.LocalOnly:
		return "local"
	case o.Elsewhere:
		return "false"
	}
	return strconv.FormatBool(o.Durable)
}

// keyEntry is the entry of an idempotency key in byKey. Each user has its own keys.
func keyEntry(key, user string) string {
	if key == "" {
		return ""
	}
	return user + "\x00" + key
}

// userOf returns the user of an entry in byKey.
func userOf(entry string) string {
	user, _, _ := strings.Cut(entry, "\x00")
	return user
}

// join returns the shared request that the options belong to, or a new one, which
// the caller must submit. It counts the caller as a follower. key is the caller's
// entry.
func (s *Service) join(o *Request, key string, body *Body) (_ *Shared, fresh bool, err error) {
	mark := fingerprint(o)
	var coalesce string
	if o.CoalesceKey != "" {
		coalesce = string(mark[:]) + o.CoalesceKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.purgeLocked(time.Now(), o.User)
	if s.closed {
		return nil, false, rest.Stopping.Of("the dispatcher is about to stop").Retryable()
	}
	if !s.callers.Fits(o.User, 1) {
		return nil, false, s.refuseLocked(BoundRequests, s.callers, o.User, "callers of shared requests")
	}
	r := &Shared{
		Events:   s.NewEvents(o.User),
		coalesce: coalesce,
		mark:     mark,
		typ:      o.Type,
		row:      o.Durable,
		via:      o.via(),
		needs:    o.Keys,
		callers:  1,
		changed:  make(chan struct{}),
	}
	if old := s.byKey[key]; old != nil {
		if old.mark != mark {
			return nil, false, rest.KeyReused.Of("the key was used for another type, payload, priority, durable, keys or coalesce_key")
		}
		old.attachLocked(o.User, o.Later)
		return old, false, nil
	}
	if old := s.byCoalesce[coalesce]; old != nil {
		if err := s.makeRoomForKeyLocked(key); err != nil {
			return nil, false, err
		}
		s.name(old, key)
		old.attachLocked(o.User, o.Later)
		return old, false, nil
	}
	if !s.running.Fits(o.User, 1) || !s.makeRoomLocked() {
		return nil, false, s.refuseLocked(BoundRequests, s.running, o.User, "shared requests")
	}
	if err := s.makeRoomForKeyLocked(key); err != nil {
		return nil, false, err
	}
	r.id, r.later, r.body = rand.Text(), o.Later, body.move()
	s.callers.Add(o.User, 1)
	s.byID[r.id] = r
	s.running.Add(r.user, 1)
	s.name(r, key)
	if coalesce != "" {
		s.byCoalesce[coalesce] = r
	}
	return r, true, nil
}

// name registers a request under an idempotency key, if there is one.
func (s *Service) name(r *Shared, key string) {
	if key != "" {
		s.byKey[key] = r
		r.keys = append(r.keys, key)
		if !r.ended() {
			s.keys.Add(userOf(key), 1)
		}
	}
}
