package claim_test

import (
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// cutter passes connections through until a test sets active. Then it drops the
// server's next answer and closes the connection: the statement arrives, but
// its answer does not.
type cutter struct {
	active  atomic.Bool
	dropped chan struct{} // receives a value for every dropped answer
}

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, cutter: c}, nil
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.cutter.active.Load() {
		c.cutter.dropped <- struct{}{}
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// A claim or finish whose connection breaks before the answer has an unknown outcome,
// which can be resolved.
func TestConnectionLostBeforeTheAnswerIsUnknownAndCanBeResolved(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	cut := &cutter{dropped: make(chan struct{}, 16)}
	seen := newReports()
	s := open(t, claim.Config{DSN: dsn, Dial: cut.dial, Observer: seen})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 3, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(3)).Won, 1, "the connection is up")
	require.Empty(t, finish(t, s, contract.Finish{ID: 3, Attempt: 1}))

	cut.active.Store(true)
	lost := claimOf(1, 2)
	require.Equal(t, contract.Unknown, s.Claim(t.Context(), lost).Verdict, "%v", seen.of(claim.OpClaim).Err)
	<-cut.dropped
	cut.active.Store(false)
	res := s.Resolve(t.Context(), lost)
	require.Equal(t, contract.OK, res.Verdict)
	require.Equal(t, []dispatcherd.JobID{1, 2}, wonIDs(res.Loading))

	items := []contract.Finish{{ID: 1, Attempt: 1, Result: []byte(`1`)}, {ID: 2, Attempt: 1, Outcome: contract.Retry, Error: "x"}}
	cut.active.Store(true)
	require.Equal(t, contract.Unknown, s.Finish(t.Context(), contract.FinishRequest{Items: items}).Verdict, "%#v", seen.of(claim.OpFinish).Err)
	<-cut.dropped
	cut.active.Store(false)
	again := s.Finish(t.Context(), contract.FinishRequest{Items: items, Again: true})
	require.Equal(t, contract.OK, again.Verdict)
	require.Empty(t, again.Stale)
	require.Equal(t, dispatcherd.Done, row(t, db, 1).Status)
	require.EqualValues(t, 1, row(t, db, 2).Failures)
}

// Postgres was restarted while a connection was idle. The next statement uses a
// new connection, so its outcome is not unknown.
func TestConnectionThatBrokeWhileIdleIsReplaced(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	fill(t, db, 2, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1)).Won, 1)
	s.PingClaims()
	exec(
		t,
		db,
		`SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'dispatcherd claim%'`,
	)
	require.Len(t, s.Claim(t.Context(), claimOf(2)).Won, 1)
}

// A claim with an unknown outcome may arrive at the server after it was resolved.
// It must then take no rows.
func TestClaimThatArrivesAfterItsResolutionTakesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn, Identity: sender})
	me, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 2, 1, 1)
	res := s.Resolve(t.Context(), claimOf(1))
	require.Equal(t, contract.OK, res.Verdict)
	require.Empty(t, res.Won)

	late := connect(t, dsn) // the same claim statement with the previous epoch
	for _, name := range []string{"claim", "claim-contended"} {
		tag, err := late.Exec(t.Context(), claim.Statements()[name], claimArgs(name, me, 77, 1)...)
		require.NoError(t, err)
		require.Zero(t, tag.RowsAffected())
	}
	require.Len(t, s.Claim(t.Context(), claimOf(1)).Won, 1, "new claims use the new epoch")
}

func TestClaimWithAnOldEpochIsReportedWithoutAnError(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, seen := connect(t, dsn), newReports()
	s := open(t, claim.Config{DSN: dsn, Observer: seen})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 1, 1, 1)
	exec(t, db, `UPDATE dispatcherd.dispatchers SET epoch = epoch + 1`)
	require.True(t, s.Claim(t.Context(), claimOf(1)).OldEpoch)
	require.Zero(t, s.Contention(), "no other dispatcher won the row")
	require.NoError(t, seen.of(claim.OpClaim).Err)
}

// reports collects the reports of a store.
type reports struct {
	mu        sync.Mutex
	last      map[claim.Operation]claim.Report
	listening chan bool
}

func newReports() *reports {
	return &reports{last: map[claim.Operation]claim.Report{}, listening: make(chan bool, 64)}
}

func (r *reports) Statement(s claim.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[s.Operation] = s
}
func (r *reports) Listening(up bool, _ error)                 { r.listening <- up }
func (r *reports) Queue(float64)                              {}
func (r *reports) Refused(claim.Operation, dispatcherd.JobID) {}

func (r *reports) Unreadable(contract.Lane, error) {}

func (r *reports) of(op claim.Operation) claim.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[op]
}

// failures collects the errors of all statements.
type failures struct {
	mu      sync.Mutex
	errs    []error
	refused map[dispatcherd.JobID][]claim.Operation
}

func (f *failures) Statement(s claim.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Err != nil {
		f.errs = append(f.errs, s.Err)
	}
}
func (f *failures) Listening(bool, error)           {}
func (f *failures) Queue(float64)                   {}
func (f *failures) Unreadable(contract.Lane, error) {}

func (f *failures) Refused(op claim.Operation, id dispatcherd.JobID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused == nil {
		f.refused = map[dispatcherd.JobID][]claim.Operation{}
	}
	f.refused[id] = append(f.refused[id], op)
}

// refusals returns the rows that were set aside, with the operation of each pause.
func (f *failures) refusals() map[dispatcherd.JobID][]claim.Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.refused)
}

func (f *failures) all() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.errs)
}

// A role or database may have a timeout that ends idle sessions. The sessions
// of a dispatcher are idle when there is no work.
func TestSessionsOverrideIdleTimeoutsOfTheDatabase(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	exec(t, connect(t, dsn), `DO $$ DECLARE s text; BEGIN
		FOR s IN SELECT name FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout') LOOP
			EXECUTE format('ALTER DATABASE %I SET %I = %L', current_database(), s, '1h');
		END LOOP;
	END $$`)
	config, err := claim.SessionConfig(claim.Config{DSN: dsn})
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	const limits = `SELECT array_agg(DISTINCT setting) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout')`
	require.Equal(t, []string{"3600000"}, one[[]string](t, connect(t, dsn), limits))
	require.Equal(t, []string{"0"}, one[[]string](t, conn, limits))
}

// By default Postgres uses the encoding of the database or of the role.
func TestSessionsUseUTF8InEveryDatabase(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	db := connect(t, database)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, payload) VALUES ('größe', '{"name": "Müller"}')`)
	exec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET client_encoding = LATIN1', current_database()); END $$`)
	s := open(t, claim.Config{DSN: database})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "größe", Limit: 1}}}).Candidates, 1)
	won := s.Claim(t.Context(), claimOf(1)).Won
	require.Len(t, won, 1)
	require.JSONEq(t, `{"name": "Müller"}`, string(won[0].Payload))
	require.Empty(t, finish(t, s, contract.Finish{ID: 1, Attempt: 1, Result: []byte(`"größer"`)}))
	config, err := pgx.ParseConfig(database)
	require.NoError(t, err)
	dsn.Session{}.Apply(config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	job, err := claim.Jobs{DB: conn}.Get(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []string{"größe", `{"name": "Müller"}`, `"größer"`}, []string{job.Type, string(job.Payload), string(job.Result)})
}

// A statement of a caller that meets the lock of another transaction waits for
// it. This also holds if the role has a stricter isolation level or a lock
// timeout.
func TestCallerSessionsOverrideIsolationAndLockTimeoutOfTheRole(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	fill(t, db, 1, 1, 1)
	exec(t, db, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET lock_timeout = 1', current_database());
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
	END $$`)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	claim.Pin(config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec(t, holder, `BEGIN; UPDATE dispatcherd.jobs_live SET priority = 2 WHERE id = 1`)
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `UPDATE dispatcherd.jobs_live SET priority = priority + 1 WHERE id = 1`)
		ended <- err
	}()
	require.Eventually(t, func() bool {
		return len(ended) == 1 ||
			one[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	}, time.Minute, time.Millisecond)
	exec(t, holder, `COMMIT`)
	require.NoError(t, <-ended)
	require.Equal(t, 3, one[int](t, db, `SELECT priority FROM dispatcherd.jobs_live WHERE id = 1`))
}

func TestServerErrorIsRefusedAndKeepsTheConnection(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	seen := newReports()
	s := open(t, claim.Config{DSN: dsn, Timeout: 3 * time.Second, Observer: seen})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 2, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2)).Won, 2)
	require.Empty(t, finish(t, s, contract.Finish{ID: 2, Attempt: 1}))
	exec(t, holder, `BEGIN; LOCK TABLE dispatcherd.jobs_live IN EXCLUSIVE MODE`)
	verdict := contract.Unknown
	for range 4 { // on a machine that stalls, the client's timeout may expire first
		if verdict == contract.Unknown {
			verdict = s.Finish(t.Context(), contract.FinishRequest{Items: []contract.Finish{{ID: 1, Attempt: 1}}}).Verdict
		}
	}
	require.Equal(t, contract.Refused, verdict, "the server's timeout expires before the client's")
	require.ErrorContains(t, seen.of(claim.OpFinish).Err, "timeout")
	exec(t, holder, `ROLLBACK`)
	require.Empty(t, finish(t, s, contract.Finish{ID: 1, Attempt: 1}))
}

func TestTerminatedConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	fill(t, db, 10, 1, 1)
	for id := dispatcherd.JobID(1); id <= 10; id++ {
		exec(
			t,
			db,
			`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'dispatcherd %'`,
		)
		req := claimOf(id)
		res := s.Claim(t.Context(), req)
		if res.Verdict == contract.Unknown {
			res = s.Resolve(t.Context(), req)
			require.Equal(t, contract.OK, res.Verdict)
			res.Won = loadAll(t, s, res.Loading).Won
		}
		if len(res.Won) == 0 {
			res = s.Claim(t.Context(), claimOf(id))
		}
		require.Len(t, res.Won, 1)
		item := []contract.Finish{{ID: id, Attempt: res.Won[0].Attempt}}
		fin := s.Finish(t.Context(), contract.FinishRequest{Items: item})
		if fin.Verdict != contract.OK {
			fin = s.Finish(t.Context(), contract.FinishRequest{Items: item, Again: true})
		}
		require.Equal(t, contract.OK, fin.Verdict)
		require.Empty(t, fin.Stale)
	}
}

func TestCallsBetweenTwoProbesFailAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	var down atomic.Bool
	var dials atomic.Int32
	s := open(t, claim.Config{DSN: dsn, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if down.Load() {
			dials.Add(1)
			return nil, &net.OpError{Op: "dial", Err: io.ErrClosedPipe}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	down.Store(true)
	calls := int32(0)
	for begun := time.Now(); time.Since(begun) < 200*time.Millisecond; calls++ {
		require.Equal(t, contract.Refused, s.Claim(t.Context(), claimOf(1)).Verdict)
	}
	require.LessOrEqual(t, dials.Load(), int32(5), "a dial every 50 ms")
	require.Greater(t, calls, 10*dials.Load(), "calls do not wait")
	require.Equal(t, contract.Refused, s.Finish(t.Context(), contract.FinishRequest{}).Verdict)
	require.Equal(t, contract.Refused, s.Fetch(t.Context(), contract.FetchRequest{}).Verdict)
	down.Store(false)
	require.Eventually(
		t,
		func() bool { return s.Fetch(t.Context(), contract.FetchRequest{}).Verdict == contract.OK },
		10*time.Second,
		time.Millisecond,
	)
}

// The protocol accepts no result that Postgres cannot store. If one arrives nevertheless, its end is
// held, and the ends of other jobs are not affected.
func TestPeer_B29_UnstorableResultDoesNotAffectOtherJobs(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	fill(t, db, 8, 1, 1)
	bad := map[dispatcherd.JobID]string{2: `{"broken`, 3: "\"\xff\"", 6: strings.Repeat("[", 100_000)}
	var items []contract.Finish
	for id := dispatcherd.JobID(1); id <= 8; id++ {
		items = append(items, contract.Finish{ID: id, Attempt: take(t, s, id).Attempt, Result: []byte(`{"fine":"\u0000"}`)})
		if b := bad[id]; b != "" {
			items[id-1].Result = []byte(b)
		}
	}
	items[6].Outcome, items[6].Result, items[6].Error = contract.FailedFinal, nil, "nul \x00 and \xff and "+strings.Repeat(
		"é",
		dispatcherd.MaxErrorLength,
	)
	items[7].Attempt = 9
	res := s.Finish(t.Context(), contract.FinishRequest{Items: items})
	require.Equal(t, []dispatcherd.JobID{8}, res.Stale)
	require.Len(t, res.Deferred, len(bad))
	for _, d := range res.Deferred {
		require.NotEmpty(t, bad[d.ID])
		require.Contains(t, d.Reason, "SQLSTATE")
	}
	for id := dispatcherd.JobID(1); id <= 6; id++ {
		got := row(t, db, id)
		if bad[id] == "" {
			require.Equal(t, dispatcherd.Done, got.Status)
			require.JSONEq(t, `{"fine":"\u0000"}`, string(got.Result))
		} else {
			require.Equal(t, dispatcherd.Running, got.Status)
		}
	}
	require.Contains(t, row(t, db, 7).Errors[0], "nul \uFFFD and \uFFFD and é")
}

func TestOpenWithoutASchemaSaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, err := claim.Open(t.Context(), claim.Config{DSN: pgtest.Empty(t)}.WithDefaults())
	require.ErrorContains(t, err, "run 'dispatcherd migrate up'")
}

// listening joins a dispatcher that receives notifications.
func listening(t *testing.T, dsn string) (*claim.Store, *claim.Listener, *reports, <-chan struct{}) {
	t.Helper()
	seen := newReports()
	s := open(t, claim.Config{DSN: dsn, Observer: seen})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	operations := make(chan struct{}, 10)
	l := s.Listen(func(topic contract.Topics) {
		if topic == contract.OperationsAsked {
			operations <- struct{}{}
		}
	})
	t.Cleanup(l.Close)
	require.True(t, <-seen.listening)
	return s, l, seen, operations
}

func TestListenerReceivesNotificationsAndReconnects(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s, l, seen, operations := listening(t, dsn)
	<-l.Jobs() // each new connection requests a scan
	require.NoError(t, s.SetSubscribed(t.Context(), true))
	fill(t, db, 10, 1, 1)
	require.Zero(t, <-l.Jobs(), "many rows must be fetched")
	var want contract.RowNotification
	require.NoError(t, db.QueryRow(t.Context(), `INSERT INTO dispatcherd.jobs (type, priority) VALUES ('one', 3)
		RETURNING id, type, priority, (extract(epoch FROM run_at) *
			1000000)::bigint`).Scan(&want.Key.ID, &want.Type, &want.Priority, &want.Key.RunAt))
	require.Equal(t, contract.Notification{Rows: []contract.RowNotification{want}}, <-l.Jobs(), "one row: named")
	exec(t, db, `BEGIN; INSERT INTO dispatcherd.jobs (type) VALUES ('one'); INSERT INTO dispatcherd.jobs (type) VALUES ('two'); COMMIT`)
	require.Zero(t, <-l.Jobs(), "the rows of two statements must be fetched, although the first notification names its row")

	require.Len(t, s.Claim(t.Context(), claimOf(5)).Won, 1)
	status, err := claim.Jobs{DB: db}.Cancel(t.Context(), 5)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status)
	<-operations
	asked, err := s.Asked(t.Context())
	require.NoError(t, err)
	require.Equal(t, []dispatcherd.JobID{5}, asked)

	exec(
		t,
		db,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'dispatcherd listen%'`,
	)
	require.False(t, <-seen.listening)
	require.True(t, <-seen.listening)
	<-l.Jobs()
	fill(t, db, 10, 1, 1)
	<-l.Jobs()
}

// When a dispatcher releases a job, idle dispatchers are notified.
func TestReleasedJobNotifiesOtherIdleDispatchers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	seen := newReports()
	idle, busy := open(t, claim.Config{DSN: dsn, Observer: seen}), open(t, claim.Config{DSN: dsn})
	for _, s := range []*claim.Store{idle, busy} {
		_, err := s.Join(t.Context())
		require.NoError(t, err)
	}
	fill(t, db, 2, 1, 1)
	l := idle.Listen(ignore)
	t.Cleanup(l.Close)
	require.True(t, <-seen.listening)
	<-l.Jobs()
	require.NoError(t, idle.SetSubscribed(t.Context(), true))
	require.Len(t, busy.Claim(t.Context(), claimOf(1, 2)).Won, 2)
	require.Empty(t, finish(t, busy, contract.Finish{ID: 1, Attempt: 1, Outcome: contract.Crashed}))
	<-l.Jobs()
	_, err := busy.Leave(t.Context())
	require.NoError(t, err)
	<-l.Jobs()
}
