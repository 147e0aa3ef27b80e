package permits

import (
	"slices"
	"strings"
)

// Unlimited is the capacity of a key without an upper limit.
const Unlimited int64 = -1

// Limit is a row of the table limits.
type Limit struct {
	// Key is exact, or a prefix that ends in "*". Each key with the prefix has a limit of its own.
	// The exact limit applies before a prefix, and a longer prefix before a shorter one.
	Key      string
	Capacity int64 // cost of all permits at once; 0 = paused; Unlimited
	Rate     int64 // cost that may start within Per; 0 = any
	Per      int64 // microseconds
	Scope    Scope
	OnRetry  OnRetry
}

// Scope states where a limit applies.
type Scope uint8

// Scopes of limits.
const (
	Cluster    Scope = iota // to all dispatchers together
	Dispatcher              // to each dispatcher separately
)

// OnRetry states whether other jobs pass a job that waits for its retry.
type OnRetry uint8

// Values of OnRetry.
const (
	Pass OnRetry = iota
	Wait         // no job passes it: the jobs of the key are a sequence
)

// defaultLimit applies to keys without a limit: one job at a time.
var defaultLimit = Limit{Capacity: 1}

// limits finds the limit of a key.
type limits struct {
	all     map[string]*Limit // by key, or by prefix and *
	lengths []int             // of prefixes, ascending
}

// set sets the limit of a key or prefix, nil = none, and reports whether it is a prefix. The length of a prefix that is gone costs
// a lookup.
func (l *limits) set(key string, limit *Limit) (isPrefix bool) {
	prefix, isPrefix := strings.CutSuffix(key, "*")
	if limit == nil {
		delete(l.all, key)
		return isPrefix
	}
	l.all[key] = limit
	if i, found := slices.BinarySearch(l.lengths, len(prefix)); isPrefix && !found {
		l.lengths = slices.Insert(l.lengths, i, len(prefix))
	}
	return isPrefix
}

// of returns the limit of a key. It costs a lookup for each length of a prefix.
func (l *limits) of(key string) *Limit {
	if limit := l.all[key]; limit != nil {
		return limit
	}
	for _, n := range slices.Backward(l.lengths) {
		if n > len(key) {
			continue
		}
		if limit := l.all[key[:n]+"*"]; limit != nil {
			return limit
		}
	}
	return &defaultLimit
}

// fits reports whether a cost can ever be admitted.
func (l *Limit) fits(cost int64) bool {
	c := atLeastOne(cost)
	return l.Capacity != 0 && (l.Capacity == Unlimited || c <= l.Capacity) && (l.Rate == 0 || c <= l.Rate)
}

// Excludes reports whether two jobs with a cost together never run at once in a cluster. While the key is paused, the answer is
// not known yet.
func (l *Limit) Excludes(cost int64) bool {
	return l.Scope == Cluster && l.Capacity != 0 && (cost == All || l.Capacity != Unlimited && cost > l.Capacity)
}

// atLeastOne returns the cost that counts in windows. A job that needs all of a key counts as one.
func atLeastOne(cost int64) int64 { return max(cost, 1) }

// most returns the highest cost that can ever be admitted.
func (l *Limit) most() int64 {
	switch {
	case l.Rate == 0:
		return l.Capacity
	case l.Capacity == Unlimited:
		return l.Rate
	}
	return min(l.Capacity, l.Rate)
}
