package claim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// restFactor is how many times as long as it took what failed is left alone.
const restFactor = 10

// rests are what beats leave for later of what they do for others. The holder of the
// turn of the lease's link owns them.
type rests struct {
	// until when beats leave alone what they could not do: by lost dispatcher, or
	// under settling. Every beat of every dispatcher would spend all of its time on
	// that until a sweep, which has more, succeeds.
	until map[int32]time.Time
	// from is the token to go on with, by lost dispatcher of which a beat had time
	// for some portions only.
	from map[int32]int64
}

func newRests() rests { return rests{until: map[int32]time.Time{}, from: map[int32]int64{}} }

// releaseTime is after how long a beat leaves the rest of what is to be released to
// the next one. A beat is the proof that its dispatcher lives, and others' lost
// ones must not take the time of it.
const releaseTime = time.Second

// settling stands for requests to cancel; it is no dispatcher's id.
const settling int32 = 0

// try does something unless it rests, and lets it rest if it fails.
func (r rests) try(what int32, do func() error) error {
	begun := time.Now()
	if begun.Before(r.until[what]) {
		return nil
	}
	delete(r.until, what)
	err := do()
	if err != nil {
		r.until[what] = time.Now().Add(restFactor * time.Since(begun))
	}
	return err
}

// lookAfter carries out requests to cancel, and releases what lost dispatchers were
// running, of each alone. None waits for another to succeed: what takes all the time
// there is rests next time; what is left to be released at until waits for the next
// beat. It returns how many jobs were released.
func (r rests) lookAfter(ctx context.Context, conn *pgx.Conn, settle bool, lost []int32, until time.Time) (released int, err error) {
	now := time.Now()
	maps.DeleteFunc(r.until, func(_ int32, at time.Time) bool { return at.Before(now) })
	maps.DeleteFunc(r.from, func(id int32, _ int64) bool { return !slices.Contains(lost, id) })
	var errs []error
	if settle {
		errs = append(errs, r.try(settling, func() error {
			_, err := conn.Exec(ctx, settleSQL)
			return err
		}))
	}
	for _, id := range lost {
		if conn.IsClosed() || ctx.Err() != nil || time.Now().After(until) {
			break // no time is left; that is no failure of theirs
		}
		errs = append(errs, r.try(id, func() (err error) {
			from, began := r.from[id]
			if !began {
				from = firstToken
			}
			var n int
			n, r.from[id], err = releasePart(ctx, conn, left{id, contract.Crashed, whyReleased}, from, until)
			released += n
			return err
		}))
	}
	return released, errors.Join(errs...)
}
