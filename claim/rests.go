package claim

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/jackc/pgx/v5"
)

// restFactor is how many times as long as it took what failed is left alone.
const restFactor = 10

// rests are until when beats leave alone what they could not do for others: by lost
// dispatcher, or under settling. A lost dispatcher may have run more than can be
// released in the time of a beat; every beat of every dispatcher would spend all of
// it on that until a sweep, which has more time, succeeds. The holder of the turn of
// the lease's link owns them.
type rests map[int32]time.Time

// settling stands for requests to cancel; it is no dispatcher's id.
const settling int32 = 0

// try does something unless it rests, and lets it rest if it fails.
func (r rests) try(what int32, do func() error) error {
	begun := time.Now()
	if begun.Before(r[what]) {
		return nil
	}
	delete(r, what)
	err := do()
	if err != nil {
		r[what] = time.Now().Add(restFactor * time.Since(begun))
	}
	return err
}

// lookAfter carries out requests to cancel, and releases what lost dispatchers were
// running, of each alone. None waits for another to succeed: what takes all the time
// there is rests next time. It returns how many jobs were released.
func (r rests) lookAfter(ctx context.Context, conn *pgx.Conn, settle bool, lost []int32) (released int, err error) {
	now := time.Now()
	for what, until := range r {
		if until.Before(now) {
			delete(r, what)
		}
	}
	var errs []error
	if settle {
		errs = append(errs, r.try(settling, func() error {
			_, err := conn.Exec(ctx, settleSQL)
			return err
		}))
	}
	for _, id := range lost {
		if conn.IsClosed() || ctx.Err() != nil {
			break // no time is left; that is no failure of theirs
		}
		errs = append(errs, r.try(id, func() error {
			n, err := release(ctx, conn, id, dispatcherd.Crashed, whyReleased)
			released += n
			return err
		}))
	}
	return released, errors.Join(errs...)
}
