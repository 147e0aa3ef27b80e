package claim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// deferFactor is the pause after failed work, relative to the duration of the work.
const deferFactor = 10

// deferred is the work for other dispatchers that heartbeats have deferred. It
// belongs to the call that has the turn of the lease connection.
type deferred struct {
	// until says when failed work is tried again. The key is the id of a lost
	// dispatcher, or cancelRequests. Without this pause every heartbeat of every
	// dispatcher would spend all of its time on the failing work, until a sweep with
	// its longer deadline succeeds.
	until map[int32]time.Time
	// from is the token at which the next heartbeat continues. The key is the id of a
	// lost dispatcher whose jobs a heartbeat has released in part.
	from map[int32]int64
}

func newDeferred() deferred {
	return deferred{until: map[int32]time.Time{}, from: map[int32]int64{}}
}

// releaseTime bounds the time that one heartbeat spends on the release of jobs. The
// next heartbeat continues the release. A heartbeat proves that its dispatcher is
// alive, so work for other dispatchers must not delay it.
const releaseTime = time.Second

// cancelRequests is the key for requests to cancel; no dispatcher has this id.
const cancelRequests int32 = 0

// try executes a function unless it is deferred, and defers it if it fails.
func (d deferred) try(what int32, do func() error) error {
	begun := time.Now()
	if begun.Before(d.until[what]) {
		return nil
	}
	delete(d.until, what)
	err := do()
	if err != nil {
		d.until[what] = time.Now().Add(deferFactor * time.Since(begun))
	}
	return err
}

// catchUp executes requests to cancel if cancel is set, and then releases the jobs of
// each lost dispatcher. An error for one dispatcher does not stop the work for the
// others. The next heartbeat continues with work that is not done at until. catchUp
// returns the number of released jobs.
func (d deferred) catchUp(ctx context.Context, conn *pgx.Conn, cancel bool, lost []int32, until time.Time) (released int, err error) {
	now := time.Now()
	maps.DeleteFunc(d.until, func(_ int32, at time.Time) bool { return at.Before(now) })
	maps.DeleteFunc(d.from, func(id int32, _ int64) bool { return !slices.Contains(lost, id) })
	var errs []error
	if cancel {
		errs = append(errs, d.try(cancelRequests, func() error {
			_, err := conn.Exec(ctx, cancelPendingSQL)
			return err
		}))
	}
	for _, id := range lost {
		if conn.IsClosed() || ctx.Err() != nil || time.Now().After(until) {
			break // the time is over, which is not an error
		}
		errs = append(errs, d.try(id, func() (err error) {
			from, began := d.from[id]
			if !began {
				from = firstToken
			}
			var n int
			n, d.from[id], err = releasePart(ctx, conn, id, from, until)
			released += n
			return err
		}))
	}
	return released, errors.Join(errs...)
}
