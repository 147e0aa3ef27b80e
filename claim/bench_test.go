package claim_test

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The results depend on the server. The private server runs without fsync. To
// measure another server, set DISPATCHERD_TEST_DATABASE_URL.

// fill inserts n jobs, distributed over a number of types and priorities.
func fill(t testing.TB, db *pgx.Conn, n, types, priorities int) {
	t.Helper()
	start := time.Now()
	inserted, err := claim.Jobs{DB: db}.InsertMany(t.Context(), generated(n, types, priorities))
	require.NoError(t, err)
	require.EqualValues(t, n, inserted)
	t.Logf("COPY: %.0f jobs/s", float64(n)/time.Since(start).Seconds())
}

func generated(n, types, priorities int) iter.Seq2[claim.New, error] {
	names := make([]string, types)
	for i := range names {
		names[i] = fmt.Sprintf("type%03d", i)
	}
	return func(yield func(claim.New, error) bool) {
		for i := range n {
			job := claim.New{Type: names[i%types], Priority: dispatcherd.Priority(i / types % priorities), Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
			if !yield(job, nil) {
				return
			}
		}
	}
}

func lanes(types, priorities, limit int) []contract.LaneQuery {
	var list []contract.LaneQuery
	for i := range types {
		for p := range priorities {
			list = append(list, contract.LaneQuery{Type: fmt.Sprintf("type%03d", i), Priority: dispatcherd.Priority(p), Limit: limit})
		}
	}
	return list
}

// drain fetches, claims and finishes n jobs in batches, one statement at a time.
func drain(t testing.TB, s *claim.Store, n, batch int, list []contract.LaneQuery) {
	t.Helper()
	for done := 0; done < n; {
		res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: list})
		require.Equal(t, contract.OK, res.Verdict)
		require.NotEmpty(t, res.Candidates)
		ids := make([]dispatcherd.JobID, 0, len(res.Candidates))
		for _, c := range res.Candidates {
			list[c.Lane].After = c.Key
			ids = append(ids, c.Key.ID)
		}
		slices.Sort(ids)
		won := s.Claim(t.Context(), claimOf(ids...))
		require.Equal(t, contract.OK, won.Verdict)
		items := make([]contract.Finish, len(won.Won))
		for i, w := range won.Won {
			items[i] = contract.Finish{ID: w.ID, Attempt: w.Attempt, Result: []byte(`{"ok":true}`)}
		}
		fin := s.Finish(t.Context(), contract.FinishRequest{Items: items})
		require.Equal(t, contract.OK, fin.Verdict)
		require.Empty(t, fin.Stale)
		done += len(items)
	}
}

// serverCPU returns the processor time that the backends of this database with a
// matching application name have used. On a machine with other load this time is
// more reliable than the clock. On systems other than Linux serverCPU returns 0.
func serverCPU(t testing.TB, db *pgx.Conn, name string) time.Duration {
	t.Helper()
	rows, err := db.Query(t.Context(),
		`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE $1`, name)
	require.NoError(t, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	var sum time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')'):]))
		for _, ticks := range fields[12:14] { // utime and stime, in hundredths of a second
			n, err := strconv.Atoi(ticks)
			require.NoError(t, err)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// purposes are the names of the connections whose processor time is measured
// separately.
var purposes = [...]string{"fetch", "claim", "finish"}

// Each iteration fetches, claims and finishes one job, in batches of 1,000.
func BenchmarkJob(b *testing.B) {
	for _, shape := range []struct{ types, priorities, read int }{{1, 1, 1}, {10, 11, 10}, {40, 1, 1}} {
		b.Run(fmt.Sprintf("types=%d/priorities=%d/read=%d", shape.types, shape.priorities, shape.read), func(b *testing.B) {
			dsn := pgtest.New(b)
			db := connect(b, dsn)
			fill(b, db, b.N*shape.types/shape.read, shape.types, shape.priorities)
			exec(b, db, `VACUUM ANALYZE dispatcherd.jobs_live`)
			exec(b, db, `CHECKPOINT`)
			s := open(b, claim.Config{DSN: dsn})
			_, err := s.Join(b.Context())
			require.NoError(b, err)
			list := lanes(shape.read, shape.priorities, max(1, 1000/(shape.read*shape.priorities)))
			drain(b, s, 0, 1000, list)
			b.ReportAllocs()
			var before [len(purposes)]time.Duration
			for i, p := range purposes {
				before[i] = serverCPU(b, db, "dispatcherd "+p+" %")
			}
			b.ResetTimer()
			drain(b, s, b.N, 1000, list)
			for i, p := range purposes {
				b.ReportMetric(float64((serverCPU(b, db, "dispatcherd "+p+" %")-before[i]).Nanoseconds())/float64(b.N), p+"-server-ns/op")
			}
		})
	}
}

// Four dispatchers, which own a quarter of the rows each, fetch, claim and
// finish each job once. They take turns and use batches of 200. The benchmark
// shows the cost of ids that are not contiguous.
func BenchmarkJobOfFour(b *testing.B) {
	const of, batch = 4, 200
	dsn := pgtest.New(b)
	db := connect(b, dsn)
	turns := b.N/of/batch + 1
	fill(b, db, of*batch*(turns+10), 1, 1) // the shares of a few rows differ in size
	exec(b, db, `VACUUM ANALYZE dispatcherd.jobs_live`)
	exec(b, db, `CHECKPOINT`)
	var stores [of]*claim.Store
	var list [of][]contract.LaneQuery
	for i := range stores {
		stores[i] = open(b, claim.Config{DSN: dsn})
		_, err := stores[i].Join(b.Context())
		require.NoError(b, err)
		list[i] = lanes(1, 1, batch)
		list[i][0].Share = contract.ShareOf(batch, contract.Others{SmallerIDs: i * batch, LargerIDs: (of - 1 - i) * batch, Least: batch})
		drain(b, stores[i], batch, batch, list[i])
	}
	var before [len(purposes)]time.Duration
	for i, p := range purposes {
		before[i] = serverCPU(b, db, "dispatcherd "+p+" %")
	}
	b.ResetTimer()
	for range turns {
		for i, s := range stores {
			drain(b, s, batch, batch, list[i])
		}
	}
	for i, p := range purposes {
		b.ReportMetric(float64((serverCPU(b, db, "dispatcherd "+p+" %")-before[i]).Nanoseconds())/float64(turns*of*batch), p+"-server-ns/op")
	}
}

// BenchmarkFloor measures the minimum for a queue in Postgres: a table with a
// primary key and an index of pending rows, one UPDATE that claims and one that
// ends. It has no fencing, no history and no result.
func BenchmarkFloor(b *testing.B) {
	db := connect(b, pgtest.Empty(b))
	exec(b, db, `CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_at timestamptz NOT NULL DEFAULT now(),
		status text NOT NULL DEFAULT 'pending', attempt int NOT NULL DEFAULT 0, payload jsonb, finished_at timestamptz) WITH (fillfactor = 50)`)
	exec(b, db, `CREATE INDEX ON floor (run_at, id) WHERE status = 'pending'`)
	exec(b, db, `INSERT INTO floor (payload) SELECT jsonb_build_object('n', i) FROM generate_series(1, $1::int) i`, b.N)
	exec(b, db, `VACUUM ANALYZE floor`)
	exec(b, db, `CHECKPOINT`)
	before := serverCPU(b, db, "")
	b.ResetTimer()
	for done := 0; done < b.N; {
		rows, err := db.Query(b.Context(), `UPDATE floor SET status = 'running', attempt = attempt + 1 WHERE id = ANY (ARRAY (
			SELECT id FROM floor WHERE status = 'pending' ORDER BY run_at, id LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING id`)
		require.NoError(b, err)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(b, err)
		exec(b, db, `UPDATE floor SET status = 'done', finished_at = now() WHERE id = ANY ($1)`, ids)
		done += len(ids)
	}
	b.ReportMetric(float64((serverCPU(b, db, "")-before).Nanoseconds())/float64(b.N), "server-ns/op")
}

// A forgotten transaction keeps all dead rows while jobs run at full load. The
// benchmark compares the last quarter of the jobs with the first.
func BenchmarkUnderAHeldSnapshot(b *testing.B) {
	dsn := pgtest.New(b)
	db, forgotten := connect(b, dsn), connect(b, dsn)
	fill(b, db, 100_000, 1, 1)
	exec(b, forgotten, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	exec(b, forgotten, `SELECT FROM dispatcherd.jobs_live LIMIT 1`)
	s := open(b, claim.Config{DSN: dsn, Lease: time.Hour})
	_, err := s.Join(b.Context())
	require.NoError(b, err)
	list := lanes(1, 1, 1000)
	quarter := max(1, b.N/4/5000) * 5000
	b.ResetTimer()
	for _, name := range []string{"first", "second", "third", "last"} {
		var work time.Duration
		before := serverCPU(b, db, "dispatcherd %")
		for n := 0; n < quarter; n += 5000 {
			fill(b, db, 5000, 1, 1)
			start := time.Now()
			drain(b, s, 5000, 1000, list)
			work += time.Since(start)
		}
		b.ReportMetric(float64(quarter)/work.Seconds(), name+"-jobs/s")
		b.ReportMetric(float64((serverCPU(b, db, "dispatcherd %")-before).Nanoseconds())/float64(quarter), name+"-server-ns/op")
	}
}

// Each iteration fetches from 110 lanes with 1 M pending rows. The goal is 2 ms.
func BenchmarkFetch(b *testing.B) {
	dsn := pgtest.New(b)
	db := connect(b, dsn)
	fill(b, db, 1_000_000, 10, 11)
	s := open(b, claim.Config{DSN: dsn})
	for _, limit := range []int{2, 10} {
		list := lanes(10, 11, limit)
		b.Run(fmt.Sprintf("lanes=110/limit=%d", limit), func(b *testing.B) {
			for b.Loop() {
				require.Len(b, s.Fetch(b.Context(), contract.FetchRequest{Lanes: list}).Candidates, 110*limit)
			}
		})
	}
}

// The benchmark measures the latency of one job at a time. It does not fetch,
// because an idle dispatcher knows the row from its notification.
func BenchmarkSingleJob(b *testing.B) {
	dsn := pgtest.New(b)
	db := connect(b, dsn)
	fill(b, db, b.N+20, 1, 1)
	exec(b, db, `VACUUM ANALYZE dispatcherd.jobs_live`)
	s := open(b, claim.Config{DSN: dsn, Lease: time.Hour})
	_, err := s.Join(b.Context())
	require.NoError(b, err)
	next := dispatcherd.JobID(0)
	var claims, finishes time.Duration
	run := func() {
		next++
		start := time.Now()
		won := take(b, s, next)
		claimed := time.Now()
		require.Empty(b, finish(b, s, contract.Finish{ID: won.ID, Attempt: won.Attempt, Result: []byte(`{"ok":true}`)}))
		claims, finishes = claims+claimed.Sub(start), finishes+time.Since(claimed)
	}
	for range 20 {
		run()
	}
	claims, finishes = 0, 0
	b.ResetTimer()
	for range b.N {
		run()
	}
	b.ReportMetric(float64(claims.Nanoseconds())/float64(b.N), "claim-ns/op")
	b.ReportMetric(float64(finishes.Nanoseconds())/float64(b.N), "finish-ns/op")
}
