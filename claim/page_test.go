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

// refusals counts statements and the reported ranges.
type refusals struct {
	claim.Observer

	mu         sync.Mutex
	statements int
	refused    []dispatcherd.JobID
}

func (r *refusals) Statement(claim.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements++
}

func (r *refusals) Refused(_ claim.Operation, id dispatcherd.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = append(r.refused, id)
}

func (r *refusals) reset() (statements int, refused []dispatcherd.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	statements, refused = r.statements, r.refused
	r.statements, r.refused = 0, nil
	return statements, refused
}

// A page in the middle of three lanes is damaged. A fetch returns all rows of other pages.
// Later fetches leave the page out without another search.
func TestDamagedPageDoesNotStopTheOtherRows(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	db := connect(t, server.dsn())
	const jobs = 2000
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, priority, run_at)
		SELECT (ARRAY['a', 'b'])[1 + n % 2], n % 2 * (n % 4), now() - CASE n % 2 WHEN 0 THEN interval '0' ELSE (3000 - n) * interval '1 ms' END
		FROM generate_series(1, $1::int) n`, jobs)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type) SELECT 'c' FROM generate_series(1, 100)`)
	block, bad := pageOf(t, db, jobs/2)
	require.Greater(t, len(bad), 20)
	server.damagePage(db, block)
	observer := &refusals{}
	s := open(t, claim.Config{DSN: server.dsn(), Observer: observer})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	var lanes []contract.LaneQuery
	for _, l := range []contract.Lane{{Type: "a"}, {Type: "b", Priority: 1}, {Type: "b", Priority: 3}, {Type: "c"}, {Type: "none"}} {
		lanes = append(lanes, contract.LaneQuery{Type: l.Type, Priority: l.Priority, Limit: jobs})
	}
	isBad := map[dispatcherd.JobID]bool{}
	for _, id := range bad {
		isBad[dispatcherd.JobID(id)] = true
	}
	check := func(req contract.FetchRequest, want, statements, ranges int) {
		t.Helper()
		observer.reset()
		res := s.Fetch(t.Context(), req)
		require.Equal(t, contract.OK, res.Verdict)
		require.NotZero(t, res.DBNow)
		rows := len(res.Candidates) // require.Len would print thousands of rows
		require.Equal(t, want, rows)
		for i, c := range res.Candidates {
			require.False(t, isBad[c.Key.ID])
			if i > 0 && res.Candidates[i-1].Lane == c.Lane {
				require.True(t, res.Candidates[i-1].Key.Less(c.Key), "order")
			}
		}
		sent, refused := observer.reset()
		require.LessOrEqual(t, sent, statements)
		require.Len(t, refused, ranges)
		for _, id := range refused {
			require.True(t, isBad[id], "job %d is reported", id)
		}
	}
	all, inA := jobs+100-len(bad), jobs/2
	for id := range isBad {
		inA -= 1 - int(id%2)
	}
	check(contract.FetchRequest{Lanes: lanes}, all, 300, 3)
	check(contract.FetchRequest{Lanes: lanes}, all, 1, 0)
	s.EndPauses()
	check(contract.FetchRequest{Lanes: lanes}, all, 2, 3)
	check(contract.FetchRequest{Lanes: lanes}, all, 1, 0)
	require.Contains(t, s.WhyUnread(dispatcherd.JobID(bad[0])), "XX001")
	require.Empty(t, s.WhyUnread(1))
	backfill := contract.FetchRequest{Lanes: []contract.LaneQuery{lanes[0]}, Backfill: true}
	backfill.Lanes[0].Before = contract.Key{RunAt: time.Now().UnixMicro(), ID: 1 << 62}
	check(backfill, inA, 2, 0) // the first one connects
	for i := range lanes {
		lanes[i].Limit = 10
	}
	check(contract.FetchRequest{Lanes: lanes}, 40, 1, 0)
}

// The last page of a lane with an expected duration is damaged, so Postgres refuses to list the lanes of its
// type. All lanes of the type are named, and the reads of the lanes leave out the page.
func TestDamagedPageHidesNoLane(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	db := connect(t, server.dsn())
	const jobs = 1000
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, priority, expected_ms) SELECT 'a', 2, 60000 FROM generate_series(1, $1::int)`, jobs)
	block, bad := pageOf(t, db, jobs)
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
	require.InDelta(t, jobs-len(bad), len(res.Candidates), float64(len(bad)), "rows of the other lanes are on the page, too")
	require.Equal(t, named(0, 3, 1), res.Named[0])
	require.Len(t, res.Named, 1+11*8)
	require.Contains(t, res.Named, named(1, 2, 2))
}

// A page with running rows of a lost dispatcher is damaged, and requests to cancel name jobs
// on it and on other pages. The lease is renewed, and the other rows are released and cancelled.
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
	waiting := one[int64](t, db, `INSERT INTO dispatcherd.jobs (type) VALUES ('x') RETURNING id`)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live SET (fillfactor = 100)`) // otherwise Postgres puts new versions of other rows on the page
	exec(t, db, `VACUUM FULL dispatcherd.jobs_live`)                        // each row has one version
	block, bad := pageOf(t, db, jobs/2)
	exec(t, db, `INSERT INTO dispatcherd.cancels (job_id) VALUES ($1), ($2)`, bad[0], waiting)
	db = server.damagePage(db, block)
	observer := &refusals{}
	s := open(t, claim.Config{DSN: server.dsn(), Observer: observer})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	released := 0
	for until := time.Now().Add(20 * time.Second); released < jobs-len(bad) && time.Now().Before(until); {
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.False(t, res.LeaseLost)
		released += res.Released
	}
	require.Equal(t, jobs-len(bad), released)
	require.True(t, one[bool](t, db, fmt.Sprintf(`SELECT EXISTS (SELECT FROM dispatcherd.jobs_cancelled WHERE id = %d)`, waiting)))
	_, refused := observer.reset()
	require.Contains(t, refused, dispatcherd.JobID(bad[0]))
}
