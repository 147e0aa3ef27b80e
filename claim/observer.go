package claim

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Operation names a kind of statement in metrics and logs.
type Operation string

// The operations.
const (
	OpConnect   Operation = "connect"
	OpFetch     Operation = "fetch"
	OpBackfill  Operation = "backfill"
	OpClaim     Operation = "claim"
	OpResolve   Operation = "resolve"
	OpLoad      Operation = "load"
	OpFinish    Operation = "finish"
	OpAdopt     Operation = "adopt"
	OpProgress  Operation = "progress"
	OpHeartbeat Operation = "heartbeat"
	OpSweep     Operation = "sweep"
	OpVacuum    Operation = "vacuum"
	OpSubscribe Operation = "subscribe"
	OpListen    Operation = "listen"
)

// Report describes one finished statement. Err never contains a payload: it has the
// message and SQLSTATE of Postgres, not the detail.
type Report struct {
	Operation Operation
	Took      time.Duration // waiting for the connection included
	Rows      int           // jobs fetched, won, ended, released
	Verdict   contract.Verdict
	Err       error // nil with verdict OK
}

// Observer receives the statements that this package sends to Postgres. Its methods
// are called from several goroutines and must not block.
type Observer interface {
	// Statement receives each statement when it has ended.
	Statement(Report)
	// Listening reports whether notifications arrive, and if not, why. Without
	// notifications only polling finds new jobs.
	Listening(up bool, why error)
}

type silent struct{}

func (silent) Statement(Report)      {}
func (silent) Listening(bool, error) {}
