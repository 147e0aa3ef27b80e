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
	OpFinish    Operation = "finish"
	OpAdopt     Operation = "adopt"
	OpProgress  Operation = "progress"
	OpHeartbeat Operation = "heartbeat"
	OpSweep     Operation = "sweep"
	OpVacuum    Operation = "vacuum"
	OpSubscribe Operation = "subscribe"
	OpListen    Operation = "listen"
)

// Report describes one finished statement. Err never holds a payload: only
// Postgres' message and SQLSTATE, not its detail.
type Report struct {
	Operation Operation
	Took      time.Duration // waiting for the connection included
	Rows      int           // jobs fetched, won, ended, released
	Verdict   contract.Verdict
	Err       error // nil with verdict OK
}

// Observer is told what happens between this package and Postgres. Its methods
// are called from several goroutines and must not block.
type Observer interface {
	// Statement is told of every statement once it has ended.
	Statement(Report)
	// Listening says that notifications arrive (again), or why they do not.
	// While they do not, only polling finds new jobs.
	Listening(up bool, why error)
}

type silent struct{}

func (silent) Statement(Report)      {}
func (silent) Listening(bool, error) {}
