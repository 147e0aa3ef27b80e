package claim_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// server is a Postgres server of one test.
type server struct {
	t       *testing.T
	options devpg.Options
	*devpg.Server
}

func newServer(t *testing.T) *server {
	dir, err := os.MkdirTemp("", "claim-pg") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755)) // a path that the server's user may enter
	s := &server{t: t, options: devpg.Options{Dir: filepath.Join(dir, "pg"), Settings: map[string]string{"fsync": "off", "autovacuum": "off"}}}
	s.start()
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	_, err = migrations.Up(t.Context(), s.dsn())
	require.NoError(t, err)
	return s
}

func (s *server) start() {
	var err error
	s.Server, err = devpg.Start(context.WithoutCancel(s.t.Context()), s.options)
	require.NoError(s.t, err)
}

func (s *server) dsn() string { return s.URL("postgres") }

// damagePage overwrites the header of a page of the jobs. The server restarts meanwhile, and
// damagePage returns a new connection.
func (s *server) damagePage(db *pgx.Conn, block int64) *pgx.Conn {
	file := one[string](s.t, db, `SELECT pg_relation_filepath('dispatcherd.jobs_live')`)
	require.NoError(s.t, db.Close(s.t.Context()))
	require.NoError(s.t, s.Stop())
	f, err := os.OpenFile(filepath.Join(s.options.Dir, "data", file), os.O_RDWR, 0)
	require.NoError(s.t, err)
	_, err = f.WriteAt([]byte("damaged by the test: the header of a page"), block*8192)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Close())
	s.start()
	return connect(s.t, s.dsn())
}

// pageOf returns the page that contains a job, and all jobs on this page.
func pageOf(t *testing.T, db *pgx.Conn, id int64) (block int64, ids []int64) {
	block = one[int64](t, db, fmt.Sprintf(`SELECT (ctid::text::point)[0]::bigint FROM dispatcherd.jobs_live WHERE id = %d`, id))
	return block, one[[]int64](
		t,
		db,
		fmt.Sprintf(`SELECT array_agg(id::bigint ORDER BY id) FROM dispatcherd.jobs_live WHERE (ctid::text::point)[0] = %d`, block),
	)
}

// readings counts statements and keeps the lanes that are reported.
type readings struct {
	failures

	mu         sync.Mutex
	statements int
	unreadable []contract.Lane
}

func (r *readings) Statement(claim.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements++
}

func (r *readings) Unreadable(lane contract.Lane, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unreadable = append(r.unreadable, lane)
}

func (r *readings) reset() (statements int, unreadable []contract.Lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	statements, unreadable = r.statements, r.unreadable
	r.statements, r.unreadable = 0, nil
	return statements, unreadable
}

var unreadableLane = contract.Lane{Type: "b", Priority: 1}

// besideAnUnreadableLane fetches the unreadable lane and another one of its type, which has one row.
func besideAnUnreadableLane(t *testing.T, s store) {
	t.Helper()
	lanes := []contract.LaneQuery{{Type: "b", Priority: 1, Limit: 50}, {Type: "b", Priority: 3, Limit: 50}, {Type: "none", Limit: 50}}
	res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: lanes})
	require.Equal(t, contract.OK, res.Verdict)
	require.NotZero(t, res.DBNow)
	require.Len(t, res.Candidates, 1)
	require.Equal(t, 1, res.Candidates[0].Lane)
}

// A page of the table with rows of one lane is damaged. The other lanes are read, and the store reports the lane, once
// per pause.
func TestUnreadableLaneStopsNoOtherLane(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := newServer(t)
		db := connect(t, server.dsn())
		exec(t, db, `INSERT INTO dispatcherd.jobs (type, priority) SELECT 'b', 1 FROM generate_series(1, 1000)`)
		exec(t, db, `INSERT INTO dispatcherd.jobs (type, priority) VALUES ('b', 3)`)
		block, _ := pageOf(t, db, 1)
		server.damagePage(db, block)
		observer := &readings{}
		s := open(t, claim.Config{DSN: server.dsn(), Observer: observer})
		_, err := s.Join(t.Context())
		require.NoError(t, err)
		for range 2 {
			besideAnUnreadableLane(t, s)
			_, reported := observer.reset()
			require.Equal(t, []contract.Lane{unreadableLane}, reported)
			require.Contains(t, s.WhyUnread(unreadableLane), "XX001")
			besideAnUnreadableLane(t, s)
			sent, reported := observer.reset()
			require.Equal(t, 1, sent)
			require.Empty(t, reported)
			s.EndPauses()
		}
	})
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		db := claimfake.NewDatabase()
		db.Do(func(t *claimfake.Table, now int64) {
			t.Unreadable = map[contract.Lane]bool{unreadableLane: true}
			t.Insert(now, claimfake.Row{Type: "b", Priority: 1})
			t.Insert(now, claimfake.Row{Type: "b", Priority: 3})
		})
		s := claimfake.NewStore(db, claim.Identity{})
		_, err := s.Join(t.Context())
		require.NoError(t, err)
		besideAnUnreadableLane(t, s)
	})
}

// The last page of a lane with an expected duration is damaged, so Postgres refuses to list the lanes of its
// type. All lanes of the type are named, and the reads of the lanes show which one is unreadable.
func TestDamagedPageHidesNoLane(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	db := connect(t, server.dsn())
	const jobs = 1000
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, priority, expected_ms) SELECT 'a', 2, 60000 FROM generate_series(1, $1::int)`, jobs)
	block, _ := pageOf(t, db, jobs)
	exec(
		t,
		db,
		`INSERT INTO dispatcherd.jobs (type, priority, expected_ms) SELECT t, 3, 1 FROM unnest('{a,b}'::text[]) t, generate_series(1, 1000)`,
	)
	server.damagePage(db, block)
	s := open(t, claim.Config{DSN: server.dsn()})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	lane := contract.LaneQuery{Type: "a", Priority: 2, Class: 2, Limit: 2 * jobs}
	res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{lane}, Classes: []string{"b", "a", "none"}})
	require.Equal(t, contract.OK, res.Verdict)
	require.Empty(t, res.Candidates)
	require.Equal(t, named(0, 3, 1), res.Named[0])
	require.Len(t, res.Named, 1+11*8)
	require.Contains(t, res.Named, named(1, 2, 2))
}

// A page with running rows of a lost dispatcher is damaged. The lease is renewed, and the other rows are released.
func TestDamagedPageDoesNotStopHeartbeats(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	db := connect(t, server.dsn())
	const jobs, lost = 1000, 77
	fill(t, db, jobs, 1, 1)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = $1, token = 5, attempt = 1`, lost)
	exec(
		t,
		db,
		`INSERT INTO dispatcherd.dispatchers (id, name, lease, lost_at) OVERRIDING SYSTEM VALUE VALUES ($1, 'lost', '1 s', now())`,
		lost,
	)
	exec(t, db, `INSERT INTO dispatcherd.claims (dispatcher, token, ids) SELECT $1, 5, array_agg(id) FROM dispatcherd.jobs_live`, lost)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live SET (fillfactor = 100)`) // otherwise Postgres puts new versions of other rows on the page
	exec(t, db, `VACUUM FULL dispatcherd.jobs_live`)                        // each row has one version
	block, bad := pageOf(t, db, jobs/2)
	server.damagePage(db, block)
	observer := &failures{}
	s := open(t, claim.Config{DSN: server.dsn(), Observer: observer})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	released := 0
	for until := time.Now().Add(20 * time.Second); released < jobs-len(bad) && time.Now().Before(until); {
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.False(t, res.LeaseLost)
		released += release(t, s)
	}
	require.Equal(t, jobs-len(bad), released)
	require.Contains(t, observer.refusals(), dispatcherd.JobID(bad[0]))
}
