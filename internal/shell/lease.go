package shell

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Lease knows until when this dispatcher can prove that the other dispatchers consider it
// alive. It counts from before the heartbeat was sent and ends a fifth early, so an error
// of it can only stop this dispatcher too soon.
type Lease struct {
	length  time.Duration
	renewed time.Duration // when the last heartbeat that succeeded was begun
	fenced  bool          // the Core was told Disowned and not yet Owned
}

// NewLease returns a lease that was renewed by a Join that began at a time.
func NewLease(length, joined time.Duration) Lease {
	return Lease{length: length, renewed: joined}
}

// Trusted reports whether the lease can be proved.
func (l *Lease) Trusted(now time.Duration) bool { return now-l.renewed < l.length*4/5 }

// Renew notes a heartbeat or a Join that succeeded and began at a time. It returns the
// event that the Core must get, or nil.
func (l *Lease) Renew(begun time.Duration) actor.Event {
	l.renewed = begun
	if !l.fenced {
		return nil
	}
	l.fenced = false
	return actor.Owned{}
}

// Guard returns Disowned, once for each loss, if the lease cannot be proved. It is to be
// called often, also while a heartbeat hangs.
func (l *Lease) Guard(now time.Duration) actor.Event {
	if l.Trusted(now) {
		return nil
	}
	return l.Fence()
}

// Fence returns Disowned, once for each loss, because a heartbeat found that others have
// declared this dispatcher lost.
func (l *Lease) Fence() actor.Event {
	if l.fenced {
		return nil
	}
	l.fenced = true
	return actor.Disowned{}
}

// Claimed returns what the answer of a claim is worth now. The process may have stood
// still since Postgres answered, and others may have taken the rows over. Without a lease
// the outcome is unknown, and only Postgres can tell.
func (l *Lease) Claimed(now time.Duration, r contract.ClaimResult) contract.ClaimResult {
	if r.Verdict == contract.OK && !l.Trusted(now) {
		return contract.ClaimResult{Verdict: contract.Unknown}
	}
	return r
}

// Adopted is Claimed for an adoption. An adoption with an unknown outcome is repeated.
func (l *Lease) Adopted(now time.Duration, r contract.AdoptResult) contract.AdoptResult {
	if r.Verdict == contract.OK && !l.Trusted(now) {
		return contract.AdoptResult{Verdict: contract.Unknown}
	}
	return r
}
