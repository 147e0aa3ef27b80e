package claim_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// The names of these tests refer to faults of other job queues; see
// docs/explanation/reliability-peers.md.

// Rows that cannot be released do not block the release of other rows, whatever
// their number and order.
func TestPeer_B03_RowsThatCannotBeReleasedDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	const stuck, jobs = 1200, 1500
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	dead, other := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn})
	run, err := dead.Join(t.Context())
	require.NoError(t, err)
	_, err = other.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, jobs, 1, 1)
	var ids []dispatcherd.JobID
	for id := dispatcherd.JobID(1); id <= jobs; id++ {
		ids = append(ids, id)
	}
	require.Len(t, dead.Claim(t.Context(), claimOf(ids...)).Won, jobs)
	lose(t, db, run)
	exec(t, holder, `BEGIN`)
	exec(t, holder, `SELECT FROM dispatcherd.jobs_live WHERE id <= $1 FOR UPDATE`, stuck)
	_, err = other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.Equal(t, jobs-stuck, release(t, other))
	exec(t, holder, `ROLLBACK`)
	_, err = other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.Equal(t, stuck, release(t, other))
}

// blackHole is a network that may drop everything in both directions without
// closing connections.
type blackHole struct {
	mu    sync.Mutex
	dark  chan struct{} // not nil while nothing gets through; closed when the network works again
	dials atomic.Int64
}

func (h *blackHole) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dark = make(chan struct{})
}

func (h *blackHole) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.dark)
	h.dark = nil
}

func (h *blackHole) state() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dark
}

func (h *blackHole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	h.dials.Add(1)
	if h.state() != nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &blackHoleConn{Conn: conn, hole: h, ended: make(chan struct{})}, err
}

// blackHoleConn does not deliver what arrives while the network drops
// everything. Its reader waits until the deadline or the end of the connection.
type blackHoleConn struct {
	net.Conn

	hole  *blackHole
	once  sync.Once
	ended chan struct{}
}

func (c *blackHoleConn) Write(b []byte) (int, error) {
	if c.hole.state() != nil {
		return len(b), nil // the bytes are lost after the kernel has accepted them
	}
	return c.Conn.Write(b)
}

func (c *blackHoleConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.hole.state() != nil {
		<-c.ended
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *blackHoleConn) Close() error {
	c.once.Do(func() { close(c.ended) })
	return c.Conn.Close()
}

// If a server stops answering without closing connections, each statement ends
// at its deadline. When the server answers again, new connections are
// established.
func TestPeer_B08_B38_EveryStatementHasADeadline(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second // longer than a shared machine stalls while the server answers
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	net := &blackHole{}
	s := open(t, claim.Config{DSN: dsn, Timeout: timeout, Dial: net.dial})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 20, 1, 1)
	for id := dispatcherd.JobID(1); id <= 3; id++ {
		take(t, s, id) // establishes the connections
	}
	require.Empty(t, finish(t, s, contract.Finish{ID: 1, Attempt: 1}))
	lane := contract.FetchRequest{Lanes: lanes(1, 1, 5)}
	require.Equal(t, contract.OK, s.Fetch(t.Context(), lane).Verdict)
	unsure := claimOf(4)
	item := contract.FinishRequest{Items: []contract.Finish{{ID: 2, Attempt: 1}}}
	silent := map[string]func() bool{ // whether the error says that the outcome is unknown
		"fetch":     func() bool { return s.Fetch(t.Context(), lane).Verdict == contract.Refused },
		"claim":     func() bool { return s.Claim(t.Context(), unsure).Verdict != contract.OK },
		"finish":    func() bool { return s.Finish(t.Context(), item).Verdict != contract.OK },
		"heartbeat": func() bool { _, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{}); return err != nil },
		"gate":      func() bool { return s.SetSubscribed(t.Context(), true) != nil },
		"resolve":   func() bool { return s.Resolve(t.Context(), unsure).Verdict != contract.OK },
	}
	net.open()
	var all sync.WaitGroup
	for what, do := range silent {
		all.Go(func() {
			began := time.Now()
			if told, took := do(), time.Since(began); !told || took > 20*timeout {
				t.Errorf("%s: told: %v, after %v", what, told, took)
			}
		})
	}
	all.Wait()
	before := net.dials.Load()
	net.close()
	require.Eventually(t, func() bool {
		return s.Fetch(t.Context(), lane).Verdict == contract.OK && s.Resolve(t.Context(), unsure).Verdict == contract.OK &&
			s.Finish(t.Context(), contract.FinishRequest{Items: item.Items, Again: true}).Verdict == contract.OK
	}, 30*time.Second, 10*time.Millisecond)
	require.Greater(t, net.dials.Load(), before, "a connection without answers is not used again")
}

// files counts the descriptors of this process.
func files(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("descriptors are not counted here: %v", err)
	}
	return len(list)
}

// Repeated reconnects of statements and of the listener leak no connection,
// goroutine or descriptor. The test counts those of the process, so no other test runs beside it.
func TestPeer_B09_ReconnectsLeakNothing(t *testing.T) {
	const rounds = 20 // each round ends a few connections and waits for their backoff
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, _, seen, _ := listening(t, dsn)
	work := func() {
		for range 3 { // the first statement finds the connection closed
			s.Fetch(t.Context(), contract.FetchRequest{Lanes: lanes(1, 1, 1)})
			s.Claim(t.Context(), claimOf(1))
			s.Finish(t.Context(), contract.FinishRequest{Items: []contract.Finish{{ID: 1, Attempt: 1}}})
			_, _ = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		}
	}
	sessions := func() (n int) {
		require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'dispatcherd %'`).Scan(&n))
		return n
	}
	work()
	goroutines, descriptors, connections := runtime.NumGoroutine(), files(t), sessions()
	for range rounds {
		exec(t, db, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE 'dispatcherd %' AND application_name NOT LIKE 'dispatcherd listen%'`)
		work()
	}
	for range 3 {
		exec(t, db, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE 'dispatcherd listen%'`)
		require.False(t, <-seen.listening)
		require.True(t, <-seen.listening)
	}
	require.Eventually(t, func() bool {
		work()
		return runtime.NumGoroutine() <= goroutines+2 && files(t) <= descriptors+2 && sessions() <= connections
	}, 30*time.Second, 50*time.Millisecond, "%d goroutines of %d, %d descriptors of %d, %d sessions of %d",
		runtime.NumGoroutine(), goroutines, files(t), descriptors, sessions(), connections)
}

// A producer may use no prepared statements or the simple protocol, for example
// behind a pooler. Payloads are JSON in both cases.
func TestPeer_B10_ProducersNeedNoPreparedStatements(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	payload := `{"text": "it's \"quoted\" \\ é", "n": [1, 2.5, null]}`
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	} {
		config, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		config.DefaultQueryExecMode = mode
		db, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		jobs := claim.Jobs{DB: db}
		id, err := jobs.Insert(t.Context(), claim.New{Type: "pdf", Payload: []byte(payload), Priority: 3, Timeout: time.Second})
		require.NoError(t, err, "%v", mode)
		job, err := jobs.Get(t.Context(), id)
		require.NoError(t, err, "%v", mode)
		require.JSONEq(t, payload, string(job.Payload), "%v", mode)
		status, err := jobs.Cancel(t.Context(), id)
		require.NoError(t, err, "%v", mode)
		require.Equal(t, dispatcherd.Cancelled, status)
		require.NoError(t, db.Close(t.Context()))
	}
}

// The row of a lost dispatcher is deleted only after all its jobs were
// released, including jobs without a record. No row runs without a dispatcher.
func TestPeer_B14_DispatcherIsDeletedAfterItsRowsAreReleased(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	s, dead := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	run, err := dead.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 4, 1, 1)
	require.Len(t, dead.Claim(t.Context(), claimOf(1, 2)).Won, 2)
	require.Len(t, dead.Claim(t.Context(), claimOf(3, 4)).Won, 2)
	exec(t, db, `DELETE FROM dispatcherd.claims WHERE 3 = ANY (ids)`)
	lose(t, db, run)
	exec(t, holder, `BEGIN`)
	exec(t, holder, `SELECT FROM dispatcherd.jobs_live WHERE id = 1 FOR UPDATE`)
	look := func() (running, orphans int) {
		require.NoError(t,
			db.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE dispatcher NOT IN (SELECT id FROM dispatcherd.dispatchers))
			FROM dispatcherd.jobs_live WHERE status = 'running'`).Scan(&running, &orphans),
		)
		return running, orphans
	}
	for round := 0; ; round++ {
		require.Less(t, round, 10, "the rows of the lost dispatcher are never released")
		if round == 3 {
			exec(t, holder, `ROLLBACK`)
		}
		_, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		running, orphans := look()
		require.Zero(t, orphans)
		release(t, s)
		_, err = s.Sweep(t.Context())
		require.NoError(t, err)
		_, orphans = look()
		require.Zero(t, orphans, "the dispatcher was deleted while a job ran under it")
		if running == 0 {
			break
		}
	}
	res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.Zero(t, res.Waiting&contract.DispatcherLost)
}

// Correctness does not depend on locks of a session, so the loss of a session
// loses no lock. A client with isolation level SERIALIZABLE sees the same rows.
func TestPeer_B22_CorrectnessNeedsNoSessionLocks(t *testing.T) {
	t.Parallel()
	for name, sql := range claim.Statements() {
		require.NotContains(t, strings.ToLower(sql), "advisory", name)
	}
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 1, 1, 1)
	won := take(t, s, 1)
	exec(t,
		db,
		`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'dispatcherd %'`,
	)
	other := open(t, claim.Config{DSN: dsn})
	_, err = other.Join(t.Context())
	require.NoError(t, err)
	res := other.Claim(t.Context(), claimOf(1))
	require.Equal(t, contract.OK, res.Verdict)
	require.Empty(t, res.Won, "the row states its dispatcher independently of the session")
	item := []contract.Finish{{ID: 1, Attempt: won.Attempt}}
	require.Eventually(t, func() bool {
		r := s.Finish(t.Context(), contract.FinishRequest{Items: item, Again: true})
		return r.Verdict == contract.OK && len(r.Stale) == 0
	}, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, dispatcherd.Done, row(t, db, 1).Status, fmt.Sprint(won))
}
