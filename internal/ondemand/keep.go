package ondemand

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// This file decides which answers are kept, for which keys, and for how long.

// keepLocked keeps the answer of a request whose callers may ask again, and forgets
// other requests. After Busy, Stopping, Unsupported and Cancelled the caller may try
// again, so these answers are kept only for the request's id. Late is kept for the
// keys if the request may have started, because another try could execute it a
// second time. Callers that were answered Late before the end get Late again,
// independent of the end.
func (s *Service) keepLocked(r *Shared) {
	s.unshareLocked(r)
	late := slices.DeleteFunc(slices.Clone(r.keys), func(key string) bool { return !slices.Contains(r.lateKeys, key) })
	final := r.answer != nil && (r.answer.Kind == Done || r.answer.Kind == Failed || r.answer.Kind == Late && (r.started || r.row))
	keep := r.answer != nil && r.later || len(r.keys) > 0 && final
	if s.byID[r.id] != r || !keep || s.closed {
		s.dropLocked(r)
	} else {
		if !final {
			s.unnameLocked(r)
		}
		s.addKeptLocked(r)
	}
	s.stayLateLocked(r, late)
	s.purgeLocked(time.Now(), r.user)
}

// lateLocked records that the caller with a key was answered Late. If the request has
// just ended, Late is also the answer that is kept for the key.
func (s *Service) lateLocked(r *Shared, key string) {
	if !slices.Contains(r.lateKeys, key) {
		r.lateKeys = append(r.lateKeys, key)
	}
	if r.ended() {
		s.stayLateLocked(r, []string{key})
	}
}

// stayLateLocked keeps the answer Late for keys of a request that has another
// answer or is forgotten. So a started request is not executed again for a key.
func (s *Service) stayLateLocked(r *Shared, keys []string) {
	keys = slices.DeleteFunc(keys, func(key string) bool { return s.byKey[key] != nil })
	begun := r.started || r.row && r.job != 0
	if len(keys) == 0 || !begun || s.closed || !s.makeRoomLocked() {
		return
	}
	reason := lateReason(r.started, r.row)
	n := &Shared{
		Events: s.NewEvents(r.user), id: rand.Text(), mark: r.mark, typ: r.typ, row: r.row, changed: make(chan struct{}),
		job: r.job, ready: true, started: r.started, answer: &Answer{Kind: Late, Reason: reason}, endedAt: time.Now(),
	}
	n.grow(int64(len(reason)))
	s.byID[n.id] = n
	for _, key := range keys {
		s.name(n, key)
	}
	s.addKeptLocked(n)
}

// keptWeight is the weight of a kept answer beside its bytes.
const keptWeight = 1 << 10

func (s *Service) addKeptLocked(r *Shared) {
	r.weight = int(r.bytes) + keptWeight
	s.keeps.Add(r.user, r.weight)
	s.kept = append(s.kept, r)
}

// evictLocked drops the oldest kept answer of the user whose kept answers have the largest
// weight. With keyed it drops one that has keys. It returns false if there is none.
func (s *Service) evictLocked(keyed bool) bool {
	user, _ := s.keeps.Largest()
	able := func(r *Shared) bool { return !keyed || len(r.keys) > 0 }
	return s.dropOldestLocked(func(r *Shared) bool { return r.user == user && able(r) }) || s.dropOldestLocked(able)
}

// dropOldestLocked drops the oldest kept answer for which f is true. It returns false if there is none.
func (s *Service) dropOldestLocked(f func(*Shared) bool) bool {
	at := slices.IndexFunc(s.kept, f)
	if at >= 0 {
		s.forgetLocked(s.kept[at])
	}
	return at >= 0
}

// makeRoomLocked drops a kept answer when the limit is reached. Requests that have not
// ended never fill the limit, because each user has a share of it.
func (s *Service) makeRoomLocked() bool {
	if len(s.byID) < s.limits.SharedRequests {
		return true
	}
	s.refused(BoundRequests)
	return s.evictLocked(false)
}

// makeRoomForKeyLocked drops a kept answer that has keys when the limit of keys is reached.
func (s *Service) makeRoomForKeyLocked(key string) error {
	user := userOf(key)
	fits := s.keys.Fits(user, 1)
	switch {
	case key == "", fits && len(s.byKey) < s.limits.Keys:
		return nil
	case fits:
		s.refused(BoundKeys)
		if s.evictLocked(true) {
			return nil
		}
	}
	return s.refuseLocked(BoundKeys, s.keys, user, "Idempotency-Keys in use")
}

// refuseLocked counts the rejection of a user that may not hold one more, and returns the
// problem.
func (s *Service) refuseLocked(b Bound, q *quota.Quota, user, what string) error {
	s.refused(b)
	return rest.QueueFull.Of(q.Objection(user, 1, what)).Retryable()
}

// purgeLocked drops answers that were kept long enough. It drops further answers of a user
// while the user holds too many bytes.
func (s *Service) purgeLocked(now time.Time, user string) {
	n := 0
	for n < len(s.kept) && now.Sub(s.kept[n].endedAt) > s.limits.KeepAnswers {
		s.dropLocked(s.kept[n])
		n++
	}
	s.kept = slices.Delete(s.kept, 0, n)
	for s.full(user) && s.dropOldestLocked(func(r *Shared) bool { return r.user == user }) {
		continue
	}
}

// dropLocked removes a request from all maps and subtracts its bytes. Followers
// that are still reading keep their references.
func (s *Service) dropLocked(r *Shared) {
	delete(s.byID, r.id)
	r.grow(-r.bytes)
	s.keeps.Add(r.user, -r.weight)
	r.weight = 0
	r.body.Drop()
	s.unnameLocked(r)
}

// unnameLocked removes a request from its keys. It can still be found by id. A
// request that has not ended keeps the keys whose callers were answered Late.
func (s *Service) unnameLocked(r *Shared) {
	var left []string
	for _, key := range r.keys {
		switch {
		case !r.ended() && slices.Contains(r.lateKeys, key):
			left = append(left, key)
		case s.byKey[key] == r:
			delete(s.byKey, key)
		}
	}
	if !r.ended() {
		r.countKeysLocked(-1)
	}
	r.keys = left
	r.countKeysLocked(1) // after the end none is left
	s.unshareLocked(r)
}

// unshareLocked removes a request from the coalesce keys.
func (s *Service) unshareLocked(r *Shared) {
	if s.byCoalesce[r.coalesce] == r {
		delete(s.byCoalesce, r.coalesce)
	}
}

// forgetLocked removes a request from all maps and keeps no answer.
func (s *Service) forgetLocked(r *Shared) {
	s.dropLocked(r)
	if !r.ended() {
		return
	}
	if at := slices.Index(s.kept, r); at >= 0 {
		s.kept = slices.Delete(s.kept, at, at+1)
	}
}
