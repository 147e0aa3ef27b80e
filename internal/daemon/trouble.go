package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// calm is how long nothing may have failed until Postgres is said to answer again.
// Each kind of statement has a connection of its own and finds out by itself that it
// is gone, some a second after the others.
const calm = 3 * time.Second

// trouble logs when Postgres begins not to answer and when that is over, not each
// repetition, and each kind of statement that it refuses for want of a right.
type trouble struct {
	log  *zap.Logger
	dsn  string
	some atomic.Bool // whether there is anything that a success may end

	mu     sync.Mutex
	since  time.Time // zero: Postgres answers
	last   time.Time // of the latest failure
	denied map[claim.Operation]bool
}

// saw is told of every statement.
func (t *trouble) saw(r claim.Report) {
	switch {
	case r.Err == nil:
		if t.some.Load() {
			t.succeeded(r.Operation)
		}
	case errors.Is(r.Err, context.Canceled): // the daemon stops: nothing is wrong with Postgres
	case unfit(r.Err): // Postgres answered; the daemon does not start, and says why
	case exit.Denied(r.Err):
		t.refused(r)
	default:
		t.failed(r)
	}
}

// unfit reports whether start-up refuses the database: another schema, or a
// pooler in transaction mode.
func unfit(err error) bool {
	var version *migrations.VersionError
	return errors.As(err, &version) || errors.Is(err, claim.ErrTransactionPool)
}

func (t *trouble) failed(r claim.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
	if !t.since.IsZero() {
		return
	}
	t.since = t.last
	t.some.Store(true)
	t.log.Warn("Postgres does not answer", zap.String("operation", string(r.Operation)),
		zap.Stringer("verdict", r.Verdict), zap.Duration("took", r.Took), zap.String("error", exit.Once(r.Err.Error())))
}

func (t *trouble) refused(r claim.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.denied[r.Operation] {
		return
	}
	if t.denied == nil {
		t.denied = map[claim.Operation]bool{}
	}
	t.denied[r.Operation] = true
	t.some.Store(true)
	t.log.Error("Postgres refuses a statement: "+exit.WhatToGrant(t.dsn, "dispatcherd serve"),
		zap.String("operation", string(r.Operation)), zap.Error(r.Err))
}

func (t *trouble) succeeded(op claim.Operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.denied[op] {
		delete(t.denied, op)
		t.log.Info("Postgres carries the statement out again", zap.String("operation", string(op)))
	}
	if !t.since.IsZero() && time.Since(t.last) >= calm {
		t.log.Info("Postgres answers again", zap.String("operation", string(op)), zap.Duration("trouble", t.last.Sub(t.since)))
		t.since = time.Time{}
	}
	t.some.Store(!t.since.IsZero() || len(t.denied) > 0)
}
