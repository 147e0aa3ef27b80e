package claim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Channels of NOTIFY.
const (
	JobsChannel   = "dispatcherd_jobs"   // some row became pending; the payload is empty or describes the only row, see parseNotification
	CancelChannel = "dispatcherd_cancel" // the payload is the id of a running job to be cancelled
)

const (
	pingEvery   = 5 * time.Second
	testPatient = 2 * time.Second
	listenPause = 250 * time.Millisecond // longest pause between two attempts to listen
	silentPause = 5 * time.Second        // pause after errNoNotifications: a pooler rarely changes its mode
	cancelsKept = 1024
)

// errNoNotifications is the error if LISTEN succeeds but no notification arrives. A
// connection pooler in transaction mode has this effect.
var errNoNotifications = errors.New("LISTEN was accepted, but a NOTIFY from another connection did not arrive within 2s: " +
	"is a pooler in transaction mode (PgBouncer) in between? Give the daemon a direct connection; until then it polls")

// Listener receives notifications of new jobs and of requests to cancel on its own
// connection. It reads all the time, because unread notifications would fill a queue
// of the server. It merges notifications of jobs that were not received yet into one.
// If too many requests to cancel are not received yet, it drops further ones. None is
// lost, because every heartbeat returns them again.
type Listener struct {
	store   *Store
	jobs    chan *contract.RowNotification
	cancels chan dispatcherd.JobID
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Listen starts a listener. It reconnects until it is closed, and tells the observer
// whether notifications arrive.
func (s *Store) Listen() *Listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &Listener{store: s, jobs: make(chan *contract.RowNotification, 1), cancels: make(chan dispatcherd.JobID, cancelsKept), stop: stop}
	l.done.Go(func() { l.loop(ctx) })
	return l
}

// Jobs receives a value when rows may have become pending. Either a notification
// arrived, or the connection was established and earlier notifications may have
// been missed. The value is the row if exactly one row became pending, and
// otherwise nil.
func (l *Listener) Jobs() <-chan *contract.RowNotification { return l.jobs }

// Cancels receives the ids of running jobs, of any dispatcher, that must be
// cancelled.
func (l *Listener) Cancels() <-chan dispatcherd.JobID { return l.cancels }

// Close ends the listener and waits until its connection is closed.
func (l *Listener) Close() {
	l.stop()
	l.done.Wait()
}

// loop connects, listens until the connection fails, and starts over.
func (l *Listener) loop(ctx context.Context) {
	for {
		err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		l.store.config.Observer.Listening(false, err)
		wait := listenPause/2 + mathrand.N(listenPause/2)
		if errors.Is(err, errNoNotifications) {
			wait = silentPause
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// session uses one connection until it fails.
func (l *Listener) session(ctx context.Context) error {
	config, err := l.store.config.connConfig("listen")
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	self := "dispatcherd_self_" + rand.Text()
	if err := l.begin(ctx, conn, self); err != nil {
		return err
	}
	l.store.config.Observer.Listening(true, nil)
	l.publish(nil) // notifications may have been missed
	for {
		if _, err := l.receive(ctx, conn, pingEvery, ""); err != nil {
			return err
		}
		if err := l.ping(ctx, conn, self); err != nil {
			return err
		}
	}
}

// begin executes LISTEN and verifies that notifications of other connections arrive
// while this one is idle.
func (l *Listener) begin(ctx context.Context, conn *pgx.Conn, self string) error {
	ctx, cancel := context.WithTimeout(ctx, l.store.config.Timeout)
	defer cancel()
	for _, channel := range []string{self, JobsChannel, CancelChannel} {
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	err := l.store.lease.do(ctx, OpListen, func(ctx context.Context, other *pgx.Conn) (int, error) {
		_, err := other.Exec(ctx, "SELECT pg_notify($1, '')", self)
		return 0, err
	})
	if err != nil {
		return fmt.Errorf("test of LISTEN: %w", err)
	}
	arrived, err := l.receive(ctx, conn, testPatient, self)
	if err == nil && !arrived {
		err = errNoNotifications
	}
	return err
}

// receive reads notifications for the given time. If expected is not empty, receive
// returns as soon as a notification of that channel arrives.
func (l *Listener) receive(ctx context.Context, conn *pgx.Conn, long time.Duration, expected string) (arrived bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	for batched := false; ; {
		note, err := conn.WaitForNotification(ctx)
		if err != nil {
			if ctx.Err() != nil && !conn.IsClosed() {
				return false, nil // no notification within the time, which is not an error
			}
			return false, err
		}
		// The notifications of one transaction arrive together.
		more := conn.PgConn().Frontend().ReadBufferLen() > 0
		alone := !batched && !more
		batched = more
		switch note.Channel {
		case JobsChannel:
			if row, ok := parseNotification(note.Payload); ok && alone {
				l.publish(&row)
			} else {
				l.publish(nil)
			}
		case CancelChannel:
			l.cancel(note.Payload)
		}
		if note.Channel == expected {
			return true, nil
		}
	}
}

// ping verifies that the connection and the server's notification queue work. Without
// a ping, a half-open connection would never report an error.
func (l *Listener) ping(ctx context.Context, conn *pgx.Conn, self string) error {
	ctx, cancel := context.WithTimeout(ctx, l.store.config.Timeout)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT pg_notify($1, '')", self)
	return err
}

// publish passes on a notification. If the previous one was not received yet, the
// two are merged. The merged notification is about more than one row, so it names
// none.
func (l *Listener) publish(row *contract.RowNotification) {
	select {
	case l.jobs <- row:
		return
	default:
	}
	select {
	case <-l.jobs:
	default: // the previous one was received meanwhile; nil instead of row only costs a fetch
	}
	l.jobs <- nil // there is room because no other goroutine sends
}

func (l *Listener) cancel(payload string) {
	id, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || id <= 0 {
		return // not a job id: any session may NOTIFY
	}
	select {
	case l.cancels <- dispatcherd.JobID(id):
	default: // the next heartbeat returns the request
	}
}

// parseNotification reads the payload "id priority run_at type", with run_at in
// microseconds since 1970. It checks every field, because any session may NOTIFY.
func parseNotification(payload string) (a contract.RowNotification, ok bool) {
	fields := strings.SplitN(payload, " ", 4)
	if len(fields) != 4 {
		return a, false
	}
	id, err1 := strconv.ParseInt(fields[0], 10, 64)
	priority, err2 := strconv.ParseUint(fields[1], 10, 8)
	runAt, err3 := strconv.ParseInt(fields[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || id <= 0 || priority > uint64(dispatcherd.MaxPriority) ||
		runAt < 0 || runAt > math.MaxInt64/2 ||
		fields[3] == "" || len(fields[3]) > dispatcherd.MaxTypeLength {
		return a, false
	}
	return contract.RowNotification{
		Type: fields[3], Priority: dispatcherd.Priority(priority),
		Key: contract.Key{RunAt: runAt, ID: dispatcherd.JobID(id)},
	}, true
}
