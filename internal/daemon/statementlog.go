package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// recovered is the time without a failed statement after which the log says that Postgres
// answers again. Each kind of statement has its own connection, and some notice a lost
// connection a second after the others.
const recovered = time.Second

// statementLog logs when Postgres stops answering or executing statements and when it answers
// again, but not each failed statement. It also logs each kind of statement that the role
// may not execute.
type statementLog struct {
	log *zap.Logger
	dsn string

	mu     sync.Mutex
	since  time.Time // zero: Postgres answers
	last   time.Time // of the latest failure
	latest string    // message of the latest failure
	logged []string  // messages since then; at most one for each cause
	denied map[claim.Operation]bool
}

// explained are the operations whose errors about a row are no fault of Postgres, and may quote the row. A spawn is answered with the
// error. The others are sent again row by row, or lane by lane, and storeObserver reports the row.
var explained = []claim.Operation{
	claim.OpSpawn,
	claim.OpFetch,
	claim.OpBackfill,
	claim.OpClaim,
	claim.OpResolve,
	claim.OpLoad,
	claim.OpFinish,
	claim.OpAdopt,
}

// report processes the result of a statement.
func (t *statementLog) report(r claim.Report) {
	switch {
	case r.Err == nil:
		t.succeeded(r.Operation)
	case errors.Is(r.Err, context.Canceled): // the daemon stops: nothing is wrong with Postgres
	case claim.AboutRow(r.Err) && slices.Contains(explained, r.Operation):
	case unfit(r.Err), r.Operation == claim.OpConnect && exit.WrongOwner(r.Err):
		// Postgres answered. The daemon does not start, and reports the reason.
	case exit.Denied(r.Err):
		t.refused(r)
	default:
		t.failed(r)
	}
}

// unfit reports whether the daemon cannot use the database: its schema has another
// version, or a pooler works in transaction mode.
func unfit(err error) bool {
	var version *migrations.VersionError
	return errors.As(err, &version) || errors.Is(err, claim.ErrTransactionPool)
}

func (t *statementLog) failed(r claim.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
	if t.since.IsZero() {
		t.since, t.logged = t.last, nil
	}
	message := failureOf(r.Err)
	t.latest = message
	if slices.Contains(t.logged, message) {
		return
	}
	t.logged = append(t.logged, message)
	t.log.Warn(message, zap.String("operation", string(r.Operation)),
		zap.Stringer("verdict", r.Verdict), zap.Duration("took", r.Took), zap.String("error", textOf(r.Err)))
}

// outage says why statements failed last, about Postgres, for the probes.
func (t *statementLog) outage() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimPrefix(t.latest, "Postgres ")
}

// textOf returns the text of an error for the log.
func textOf(err error) string {
	if code := claim.AnswerCode(err); strings.HasPrefix(code, "P0") || strings.HasPrefix(code, "22") {
		return "SQLSTATE " + code + ": the message, which may quote a row, is in the log of Postgres"
	}
	return exit.Once(err.Error())
}

// failureOf returns the message for an error that is not about a row. Postgres answers also
// while it lacks memory, disk space or connections, or while a lock is not granted.
func failureOf(err error) string {
	switch code := claim.AnswerCode(err); {
	case errors.Is(err, claim.ErrLeaseLost):
		return "this dispatcher has lost its lease"
	case dsn.ReadOnly(err):
		return "Postgres is read-only"
	case strings.HasPrefix(code, "53"):
		return "Postgres lacks resources: connections, memory or disk space"
	case code == "" || strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P"): // it starts, stops or has crashed
		return "Postgres does not answer"
	}
	return "Postgres refuses a statement"
}

func (t *statementLog) refused(r claim.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.denied[r.Operation] {
		return
	}
	if t.denied == nil {
		t.denied = map[claim.Operation]bool{}
	}
	t.denied[r.Operation] = true
	t.log.Error("Postgres refuses a statement: "+exit.WhatToGrant(r.Err, t.dsn, "dispatcherd serve"),
		zap.String("operation", string(r.Operation)), zap.Error(r.Err))
}

func (t *statementLog) succeeded(op claim.Operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.denied[op] {
		delete(t.denied, op)
		t.log.Info("Postgres executes the statement again", zap.String("operation", string(op)))
	}
	if !t.since.IsZero() && time.Since(t.last) >= recovered { // an idle dispatcher sends a heartbeat after some seconds
		t.log.Info("Postgres answers again", zap.String("operation", string(op)), zap.Duration("outage", t.last.Sub(t.since)))
		t.since = time.Time{}
	}
}

// storeObserver logs and counts statements. It implements claim.Observer.
type storeObserver struct {
	*Daemon

	results  statementLog
	notified atomic.Bool // notifications arrive
	rows     *limitedLog // that Postgres refuses
	lanes    *limitedLog // that Postgres cannot read
	down     bool        // a lost connection was logged; used by the goroutine of the listener only
}

// Statement implements claim.Observer.
func (o *storeObserver) Statement(r claim.Report) {
	o.metrics.statements.WithLabelValues(string(r.Operation), r.Verdict.String()).Observe(r.Took.Seconds())
	o.metrics.rows.WithLabelValues(string(r.Operation)).Add(float64(r.Rows))
	o.results.report(r)
}

// Listening implements claim.Observer. It is called after each failed attempt.
func (o *storeObserver) Listening(up bool, why error) {
	switch {
	case up:
		o.log.Info("notifications arrive")
	case !o.down:
		o.log.Warn("no notifications, only polling finds new jobs", zap.Error(why))
	}
	o.down = !up
	o.notified.Store(up)
	o.loop.Order(actor.Listening{On: up})
}

// Queue implements claim.Observer.
func (o *storeObserver) Queue(usage float64) { o.metrics.queueUsage.Set(usage) }
