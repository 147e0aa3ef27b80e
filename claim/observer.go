package claim

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
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
	OpCount     Operation = "count"
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
	// Refused receives a row that Postgres refused to change in a statement of its own, or
	// that is locked, at the begin of each pause of the row. [Store.WhyAside] says why.
	// Claims, loads and finishes return such rows instead.
	Refused(op Operation, id dispatcherd.JobID)
	// Listening reports whether notifications arrive, and if not, why. Without
	// notifications only polling finds new jobs.
	Listening(up bool, why error)
	// Queue reports the state of the notification queue every few seconds.
	Queue(QueueState)
}

// QueueState describes the notification queue, which all databases of a server share.
type QueueState struct {
	Usage float64 // used part of the queue, 0 to 1
	// Blocking are the sessions whose transaction has been open longest, while the queue
	// is so full that this dispatcher does not notify. A session that listens keeps all
	// notifications that were sent after the begin of its transaction. There are at most
	// maxBlocking. The list is empty until the sessions are known.
	Blocking []BlockingSession
}

// BlockingSession is a session with an open transaction.
type BlockingSession struct {
	PID               int32
	Transaction       string // virtual transaction id
	User, Application string
}

type silent struct{}

func (silent) Statement(Report)                     {}
func (silent) Refused(Operation, dispatcherd.JobID) {}
func (silent) Listening(bool, error)                {}
func (silent) Queue(QueueState)                     {}
