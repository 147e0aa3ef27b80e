package operation

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

const (
	readMost  = 1000                  // operations that one statement reads
	together  = 200                   // operations of one transaction
	stepTime  = time.Second           // after which a step begins no further transaction
	restTime  = 10 * time.Millisecond // between two steps: any session may notify
	lockPause = time.Second           // until an operation that has met a lock is tried again
	noMore    = time.Hour
	lockTime  = "SET LOCAL lock_timeout = '100ms'" // of one statement
)

// Operation is a row of the table operations.
type Operation struct {
	ID     int64
	Kind   string
	Target dispatcherd.JobID // 0 = all
	Who    string
	Reason string
	Name   string // of a type or worker
	Until  *time.Time
}

// Service does what operators want.
type Service struct {
	DB claim.DB
	// Done reports operations of one kind and caller that were done together, and how many jobs or counters they have changed. An
	// operation that Postgres refused has an error.
	Done func(done []Operation, changed int, refused error)
}

// Service returns the background service.
func (s Service) Service() background.Service {
	p := pass{Service: s}
	return background.Service{
		Name: "operations", Controller: true, Topics: contract.OperationsAsked | contract.OperationsWait, Rest: restTime, Step: p.step,
	}
}

// nextSQL reads the first operations with an id above $2 that the controller must do.
const nextSQL = `
SELECT o.id, o.kind, coalesce(o.target, 0), coalesce(o.who, ''), coalesce(o.reason, ''), coalesce(o.name, ''), o.until
FROM dispatcherd.operations o
WHERE ` + claim.OpenOperation + ` AND o.id > $2 ORDER BY o.id LIMIT $1`

// pass is one way through the table. It takes several steps if there are many operations, or some that meet locks.
type pass struct {
	Service

	after int64                      // the last operation that the pass has come to; 0 = it begins
	waits map[dispatcherd.JobID]bool // targets of operations that have met a lock
	until time.Time                  // when this step ends
}

func (p *pass) step(ctx context.Context, _ background.Now) (wait time.Duration, err error) {
	if p.after == 0 {
		p.waits = map[dispatcherd.JobID]bool{}
	}
	p.until = time.Now().Add(stepTime)
	reading, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	all, err := list[Operation](reading, p.DB, nextSQL, readMost, p.after)
	left := all
	for len(left) > 0 && err == nil && time.Now().Before(p.until) {
		var n int
		if n, err = p.do(ctx, left[:alike(left)]); n > 0 {
			p.after, left = left[n-1].ID, left[n:]
		}
	}
	switch {
	case err == nil && (len(left) > 0 || len(all) == readMost):
		return 0, nil
	case len(p.waits) > 0:
		wait = lockPause
	default:
		wait = noMore
	}
	p.after = 0
	return wait, err
}

// alike returns how many of the first operations one transaction does.
func alike(list []Operation) int {
	first := &list[0]
	if first.Kind != "cancel" && first.Kind != "retry" {
		return 1
	}
	n := 1
	for n < min(len(list), together) && list[n].Kind == first.Kind && list[n].Who == first.Who {
		n++
	}
	return n
}

// do does operations that are alike, at least the first of them, and returns to how many of them it has come.
func (p *pass) do(ctx context.Context, list []Operation) (n int, err error) {
	free := slices.DeleteFunc(slices.Clone(list), func(o Operation) bool { return p.waits[o.Target] })
	if len(free) == 0 {
		return len(list), nil
	}
	changed, err := p.transact(ctx, free)
	lock := slices.Contains([]string{lockNotAvailable, queryCancelled}, claim.AnswerCode(err)) ||
		errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	switch {
	case err == nil:
		p.Done(free, changed, nil)
	case !lock && !refuses(err):
		return 0, err
	case len(list) > 1:
		for n == 0 || n < len(list) && time.Now().Before(p.until) {
			if _, err := p.do(ctx, list[n:n+1]); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	case lock:
		p.waits[list[0].Target] = true
	default:
		p.Done(list, 0, err)
		_, err = p.DB.Exec(ctx, `DELETE FROM dispatcherd.operations WHERE id = $1`, list[0].ID)
		return 1, err
	}
	return len(list), nil
}

// refuses reports whether an error says why an operation is not done.
func refuses(err error) bool {
	_, ofTree := errors.AsType[*joins.RefusedError](err)
	_, ofJob := errors.AsType[*claim.StatusError](err)
	_, ofControl := errors.AsType[*rest.RefusalError](err)
	return ofTree || ofJob || ofControl || errors.Is(err, claim.ErrNotFound) || errors.Is(err, errSomeRefused) || claim.AboutRow(err)
}

// errSomeRefused says that some of several retries are refused. Each of them alone says why.
var errSomeRefused = errors.New("some jobs cannot be retried")

// SQLSTATEs of a statement that has waited for a lock, or took too long for another reason.
const (
	lockNotAvailable = "55P03"
	queryCancelled   = "57014"
)

// takeSQL locks those of operations $1 that no other controller does or has done.
const takeSQL = `SELECT coalesce(target, 0) FROM dispatcherd.operations WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED`

// transact does operations in one transaction and deletes them, except requests to cancel jobs that run meanwhile.
func (p *pass) transact(ctx context.Context, list []Operation) (changed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	ids := make([]int64, len(list))
	for i, o := range list {
		ids[i] = o.ID
	}
	err = pgx.BeginFunc(ctx, p.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockTime); err != nil {
			return err
		}
		targets, err := claim.Column[dispatcherd.JobID](ctx, tx, takeSQL, ids)
		if err != nil || len(targets) == 0 {
			return err
		}
		if changed, err = execute(ctx, tx, &list[0], targets); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM dispatcherd.operations o WHERE o.id = ANY ($1::bigint[]) AND `+claim.OpenOperation, ids)
		return err
	})
	return changed, err
}

// execute does operations like first with the targets.
func execute(ctx context.Context, tx pgx.Tx, first *Operation, targets []dispatcherd.JobID) (changed int, err error) {
	jobs, trees := claim.Jobs{DB: tx, By: first.Who}, joins.Joins{DB: tx, By: first.Who}
	switch first.Kind {
	case "retry":
		if len(targets) == 1 {
			return 1, jobs.Retry(ctx, targets[0])
		}
		if changed, _, err = jobs.RetryMany(ctx, targets); err == nil && changed < len(targets) {
			err = errSomeRefused
		}
		return changed, err
	case "cancel":
		slices.Sort(targets) // rows are locked in the order of their ids
		cancelled, err := jobs.CancelIdle(ctx, targets)
		return len(cancelled), err
	case "cancel_tree":
		tree, err := trees.Cancel(ctx, first.Target)
		if errors.Is(err, joins.ErrNotFound) { // a job without children
			_, err = jobs.Cancel(ctx, first.Target)
			tree.Cancelled = 1
		}
		return tree.Cancelled + tree.Running, err
	case "retry_tree":
		tree, err := trees.Retry(ctx, first.Target)
		if errors.Is(err, joins.ErrNotFound) {
			err = jobs.Retry(ctx, first.Target)
			tree.Changed = 1
		}
		return tree.Changed, err
	case "repair":
		return 0, trees.Repair(ctx, first.Target)
	}
	return 1, control(ctx, Controls{DB: tx, By: first.Who}, first)
}

// control changes a control as an operation says.
func control(ctx context.Context, c Controls, o *Operation) (err error) {
	switch o.Kind {
	case "resume":
		_, err = c.Resume(ctx, o.Name)
	case "drain":
		_, _, err = c.Drain(ctx, contract.Drain{Worker: o.Name, Reason: o.Reason})
	case "drain_dispatcher", "resume_dispatcher":
		_, err = c.SendAway(ctx, o.Name, o.Kind == "drain_dispatcher")
	case "undrain":
		_, err = c.Undrain(ctx, o.Name, "")
	default:
		what := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(o.Kind, "pause"), "_"), contract.PauseAll)
		_, _, err = c.Pause(ctx, contract.Pause{Type: o.Name, What: what, Until: o.Until, Reason: o.Reason}, nil)
	}
	return err
}
