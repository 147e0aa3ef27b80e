package claim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/jackc/pgx/v5"
)

// Channel is the only channel of NOTIFY. The first word of a payload is its topic.
const Channel = "dispatcherd"

// topics are the words for topics. After jobs the payload may describe the only row that became pending, see parseNotification, and after
// admitted the rows that have got their permits. Other sessions may send any payload, so unknown words are ignored.
var topics = map[string]contract.Topics{
	"jobs": contract.JobsArrived, "admitted": contract.RowsAdmitted, "operations": contract.OperationsAsked, "edits": contract.EditsMade,
	"keys": contract.KeysChanged, "ends": contract.EndsWait, "controls": contract.ControlsChanged, "reports": contract.ReportsMade,
	"watch": contract.WatchAsked,
}

const (
	pingEvery   = 10 * time.Second
	listenPause = 250 * time.Millisecond // longest pause between two attempts to listen
	// listenPatience bounds LISTEN. If no other session of the database listens, LISTEN
	// reads the whole notification queue, which may contain 8 GB.
	listenPatience = 10 * time.Minute
	// checkPatience bounds a check. Before an answer the server reads all that was added
	// to the queue since its last answer, up to 8 GB. For a new connection it would read
	// all of this again.
	checkPatience = time.Minute
)

// errQueueFull is the error while this dispatcher sends no notifications because of
// dispatcherd.may_notify.
var errQueueFull = errors.New("the notification queue of the server is at least half full: " +
	"a session that listens has a transaction open; docs/how-to/operations.md says how to find it")

// errSlowCheck is the error while the server does not answer a check.
var errSlowCheck = errors.New("the server does not answer on the connection that listens; the daemon polls until it does")

// Listener receives notifications on its own connection. It reads all the time, because unread notifications would fill a queue of
// the server. It merges the notifications of jobs that its user has not yet taken.
type Listener struct {
	store   *Store
	jobs    chan contract.Notification
	receive func(contract.Topics)
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Listen starts a listener. The listener reconnects until Close, and tells the observer
// whether notifications arrive. It calls receive for each notification that is known. receive must not block.
func (s *Store) Listen(receive func(contract.Topics)) *Listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &Listener{store: s, jobs: make(chan contract.Notification, 1), receive: receive, stop: stop}
	l.done.Go(func() { l.loop(ctx) })
	return l
}

// Jobs receives a value when rows may have become pending. Either a notification
// arrived, or the connection was established and earlier notifications may have
// been missed.
func (l *Listener) Jobs() <-chan contract.Notification { return l.jobs }

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
		if !background.Pause(ctx, listenPause/2+rand.N(listenPause/2)) {
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
	if err := subscribe(ctx, conn); err != nil {
		return err
	}
	for up := false; ; {
		if up, err = l.check(ctx, conn, up); err != nil {
			return err
		}
		if err := l.await(ctx, conn); err != nil {
			return err
		}
	}
}

// subscribe executes LISTEN. Neither the deadline of other statements nor that of the
// server applies.
func subscribe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenPatience)
	defer cancel()
	for _, sql := range []string{"SET statement_timeout = 0", "SET lock_timeout = 0", "LISTEN " + Channel} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// check sends a statement, so that a half-open connection, or a session that has become read-only, reports an error. It reads the state of
// the notification queue, and reports to the observer when notifications begin or cease to arrive. While the queue is full, the connection
// stays open and keeps its place in the queue: a new one would have to read all of it.
// While the server does not answer in time, the connection counts as silent, so that the
// dispatcher polls.
func (l *Listener) check(ctx context.Context, conn *pgx.Conn, up bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	reported := make(chan struct{})
	slow := time.AfterFunc(l.store.config.Timeout, func() {
		l.store.config.Observer.Listening(false, errSlowCheck)
		close(reported)
	})
	var may bool
	var usage float64
	err := conn.QueryRow(ctx, queueSQL).Scan(&may, &usage)
	if !slow.Stop() {
		<-reported // calls of the observer must not overlap
		up = false
	}
	if err == nil {
		err = dsn.CheckWrites(ctx, conn)
	}
	if err != nil {
		return false, err
	}
	l.store.config.Observer.Queue(usage)
	switch {
	case !may:
		l.store.config.Observer.Listening(false, fmt.Errorf("%w: %.0f %% of it is used", errQueueFull, 100*usage))
	case !up:
		l.store.config.Observer.Listening(true, nil)
		l.publish(contract.Notification{}) // notifications may have been missed
	}
	return may, nil
}

// queueSQL reads the state of the notification queue.
const queueSQL = `SELECT dispatcherd.may_notify(), pg_notification_queue_usage()`

// await reads notifications until the next check.
func (l *Listener) await(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	for batched := false; ; {
		note, err := conn.WaitForNotification(ctx)
		switch {
		case err != nil && ctx.Err() != nil && !conn.IsClosed():
			return nil // the time is over, which is not an error
		case err != nil:
			return err
		}
		// The notifications of one transaction arrive together.
		more := conn.PgConn().Frontend().ReadBufferLen() > 0
		l.received(note.Payload, !batched && !more)
		batched = more
	}
}

// received passes on a notification. alone says that its transaction has sent no other.
func (l *Listener) received(payload string, alone bool) {
	word, text, _ := strings.Cut(payload, " ")
	topic := topics[word]
	switch topic {
	case 0:
		return
	case contract.JobsArrived:
		var n contract.Notification
		if row, ok := parseNotification(text); ok && alone {
			n.Rows = []contract.RowNotification{row}
		}
		l.publish(n)
	case contract.RowsAdmitted:
		if to, rows := parseAdmitted(text); len(rows) > 0 && (to == 0 || to == l.store.Dispatcher()) {
			l.publish(contract.Notification{Rows: rows, Admitted: true})
		}
	}
	l.receive(topic)
}

// publish passes on a notification. If the previous notification was not taken yet,
// publish merges both. A merged notification names no rows.
func (l *Listener) publish(n contract.Notification) {
	select {
	case l.jobs <- n:
		return
	default:
	}
	select {
	case <-l.jobs:
	default: // the previous one was received meanwhile; a notification without rows only costs a fetch
	}
	l.jobs <- contract.Notification{} // there is room because no other goroutine sends
}

// parseAdmitted reads the number of the only dispatcher that may claim rows, 0 = any, and lines that name them.
func parseAdmitted(text string) (to int32, rows []contract.RowNotification) {
	number, lines, _ := strings.Cut(text, "\n")
	n, err := strconv.ParseInt(number, 10, 32)
	for line := range strings.SplitSeq(lines, "\n") {
		row, ok := parseNotification(line)
		if !ok || err != nil {
			return 0, nil
		}
		rows = append(rows, row)
	}
	return int32(n), rows
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
