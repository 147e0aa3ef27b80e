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
	JobsChannel   = "dispatcherd_jobs"      // some row became pending; the payload is empty or describes the only row, see parseNotification
	CancelChannel = "dispatcherd_cancel"    // the payload is the id of a running job to be cancelled
	EditsChannel  = "dispatcherd_schedules" // schedules were edited; the payload is empty
	KeysChannel   = "dispatcherd_keys"      // jobs with keys were inserted or ended, or limits were edited; the payload is empty
	EndsChannel   = "dispatcherd_ends"      // ends of jobs are to be counted; the payload is empty
)

const (
	pingEvery   = 5 * time.Second
	testPatient = 2 * time.Second
	listenPause = 250 * time.Millisecond // longest pause between two attempts to listen
	silentPause = 5 * time.Second        // pause after errNoNotifications: a pooler rarely changes its mode
	cancelsKept = 1024
	// listenPatience bounds LISTEN. If no other session of the database listens, LISTEN
	// reads the whole notification queue, which may contain 8 GB.
	listenPatience = 10 * time.Minute
	// checkPatience bounds a check. Before an answer the server reads all that was added
	// to the queue since its last answer, up to 8 GB. For a new connection it would read
	// all of this again.
	checkPatience = time.Minute
)

// errNoNotifications is the error if LISTEN succeeds but no notification arrives. A
// connection pooler in transaction mode has this effect.
var errNoNotifications = errors.New("LISTEN was accepted, but a NOTIFY from another connection did not arrive within 2s: " +
	"is a pooler in transaction mode (PgBouncer) in between? Give the daemon a direct connection; until then it polls")

// errQueueFull is the error while this dispatcher sends no notifications because of
// dispatcherd.may_notify.
var errQueueFull = errors.New("the notification queue of the server is at least half full: " +
	"a session that listens has a transaction open; docs/how-to/operations.md says how to find it")

// errSlowCheck is the error while the server does not answer a check.
var errSlowCheck = errors.New("the server does not answer on the connection that listens; the daemon polls until it does")

// Listener receives notifications of new jobs and of requests to cancel on its own
// connection. It reads all the time, because unread notifications would fill a queue of
// the server. It merges the notifications of jobs that its user has not yet taken. It
// holds at most cancelsKept requests to cancel and drops further ones, which every
// heartbeat returns again.
type Listener struct {
	store   *Store
	jobs    chan *contract.RowNotification
	cancels chan dispatcherd.JobID
	edits   chan struct{}
	keys    chan struct{}
	ends    chan struct{}
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Listen starts a listener. The listener reconnects until Close, and tells the observer
// whether notifications arrive.
func (s *Store) Listen() *Listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &Listener{store: s, jobs: make(chan *contract.RowNotification, 1), cancels: make(chan dispatcherd.JobID, cancelsKept),
		edits: make(chan struct{}, 1), keys: make(chan struct{}, 1), ends: make(chan struct{}, 1), stop: stop}
	l.done.Go(func() { l.loop(ctx) })
	return l
}

// Jobs receives a value when rows may have become pending. Either a notification
// arrived, or the connection was established and earlier notifications may have
// been missed. The value is the row if exactly one row became pending, and
// otherwise nil.
func (l *Listener) Jobs() <-chan *contract.RowNotification { return l.jobs }

// Cancels receives the ids of jobs, of any dispatcher, for which [Store.Asked] may have a
// request to cancel.
func (l *Listener) Cancels() <-chan dispatcherd.JobID { return l.cancels }

// Edits receives a value after schedules were edited. A notification may be missed.
func (l *Listener) Edits() <-chan struct{} { return l.edits }

// Keys receives a value after jobs with keys were inserted or ended, or limits were edited. A notification may be missed.
func (l *Listener) Keys() <-chan struct{} { return l.keys }

// Ends receives a value when ends of jobs are to be counted. A notification may be missed.
func (l *Listener) Ends() <-chan struct{} { return l.ends }

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
	if err := subscribe(ctx, conn, self); err != nil {
		return err
	}
	for up := false; ; {
		if up, err = l.check(ctx, conn, self, up); err != nil {
			return err
		}
		if _, err := l.receive(ctx, conn, pingEvery, ""); err != nil {
			return err
		}
	}
}

// subscribe executes LISTEN. Neither the deadline of other statements nor that of the
// server applies.
func subscribe(ctx context.Context, conn *pgx.Conn, self string) error {
	ctx, cancel := context.WithTimeout(ctx, listenPatience)
	defer cancel()
	statements := []string{"SET statement_timeout = 0", "SET lock_timeout = 0"}
	for _, channel := range []string{self, JobsChannel, CancelChannel, EditsChannel, KeysChannel, EndsChannel} {
		statements = append(statements, "LISTEN "+pgx.Identifier{channel}.Sanitize())
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// check sends a notification to the connection itself, unless the notification queue is
// too full. So a half-open connection reports an error. check reports to the observer
// when notifications begin or cease to arrive. While the queue is full, the connection
// stays open and keeps its place in the queue: a new one would have to read all of it.
// While the server does not answer in time, the connection counts as silent, so that the
// dispatcher polls.
func (l *Listener) check(ctx context.Context, conn *pgx.Conn, self string, up bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	reported := make(chan struct{})
	slow := time.AfterFunc(l.store.config.Timeout, func() {
		l.store.config.Observer.Listening(false, errSlowCheck)
		close(reported)
	})
	var may bool
	var usage float64
	err := conn.QueryRow(ctx, queueSQL, self).Scan(&may, &usage, nil)
	if !slow.Stop() {
		<-reported // calls of the observer must not overlap
		up = false
	}
	if err != nil {
		return false, err
	}
	l.store.config.Observer.Queue(usage)
	switch {
	case !may:
		l.store.config.Observer.Listening(false, fmt.Errorf("%w: %.0f %% of it is used", errQueueFull, 100*usage))
	case !up:
		if err := l.verify(ctx, conn, self); err != nil {
			return false, err
		}
		l.store.config.Observer.Listening(true, nil)
		l.publish(nil) // notifications may have been missed
	}
	return may, nil
}

// verify verifies that notifications of other connections arrive while this one is idle.
func (l *Listener) verify(ctx context.Context, conn *pgx.Conn, self string) error {
	if _, err := l.receive(ctx, conn, testPatient, self); err != nil {
		return err // what check has sent
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

// queueSQL reads the state of the notification queue, and notifies channel $1 unless the
// queue is too full.
const queueSQL = `
SELECT may, pg_notification_queue_usage(), CASE WHEN may THEN pg_notify($1, '')::text END
FROM (SELECT dispatcherd.may_notify() AS may OFFSET 0) q`

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
		case KeysChannel:
			select {
			case l.keys <- struct{}{}:
			default:
			}
		case EndsChannel:
			select {
			case l.ends <- struct{}{}:
			default:
			}
		case EditsChannel:
			select {
			case l.edits <- struct{}{}:
			default:
			}
		}
		if note.Channel == expected {
			return true, nil
		}
	}
}

// publish passes on a notification. If the previous notification was not taken yet,
// publish merges both. A merged notification is about several rows, so it names none.
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

// parseNotification reads the payload "id priority run_at type" or "id priority/class run_at type", with run_at in
// microseconds since 1970. It checks every field, because any session may NOTIFY.
func parseNotification(payload string) (a contract.RowNotification, ok bool) {
	fields := strings.SplitN(payload, " ", 4)
	if len(fields) != 4 {
		return a, false
	}
	id, err1 := strconv.ParseInt(fields[0], 10, 64)
	lane, number, named := strings.Cut(fields[1], "/")
	priority, err2 := strconv.ParseUint(lane, 10, 8)
	runAt, err3 := strconv.ParseInt(fields[2], 10, 64)
	class := uint64(0)
	if named {
		var err error
		class, err = strconv.ParseUint(number, 10, 8)
		if class++; err != nil || class >= dispatcherd.DurationClasses {
			return a, false
		}
	}
	if err1 != nil || err2 != nil || err3 != nil || id <= 0 || priority > uint64(dispatcherd.MaxPriority) ||
		runAt < 0 || runAt > math.MaxInt64/2 ||
		dispatcherd.CheckType(fields[3]) != nil {
		return a, false
	}
	return contract.RowNotification{
		Type: fields[3], Priority: dispatcherd.Priority(priority), Class: dispatcherd.DurationClass(class),
		Key: contract.Key{RunAt: runAt, ID: dispatcherd.JobID(id)},
	}, true
}
