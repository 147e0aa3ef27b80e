package claim_test

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
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

// plan is a node of EXPLAIN (FORMAT JSON).
type plan struct {
	Type  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Index string `json:"Index Name"`
	Cond  string `json:"Index Cond"`
	Plans []plan

	// with ANALYZE and BUFFERS
	Hit     int `json:"Shared Hit Blocks"`
	Read    int `json:"Shared Read Blocks"`
	Removed int `json:"Rows Removed by Filter"`
}

// scans returns how a plan reads the hot table, for example "Index Scan
// jobs_live_lanes". It marks a scan that reads the complete index.
func (p plan) scans() []string {
	var list []string
	if p.Table == "jobs_live" && p.Type != "ModifyTable" {
		list = append(list, strings.TrimSpace(p.Type+" "+p.Index))
		if p.Index != "" && p.Cond == "" {
			list[0] += " from end to end"
		}
	}
	for _, sub := range p.Plans {
		list = append(list, sub.scans()...)
	}
	return list
}

// plansOf returns the scans of all statements of a store. They are planned in
// sessions with the store's settings.
func plansOf(t *testing.T, dsn string) map[string][]string {
	t.Helper()
	plans := map[string][]string{}
	for name, sql := range claim.Statements() {
		config, err := claim.SessionConfig(claim.Config{DSN: dsn})
		require.NoError(t, err)
		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		// every parameter of the prepared statement is NULL: the plan is
		// generic
		exec(t, conn, `PREPARE s AS `+sql)
		var n int
		require.NoError(
			t,
			conn.QueryRow(t.Context(), `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 's'`).Scan(&n),
		)
		var raw []byte
		execute := `EXECUTE s`
		if n > 0 {
			execute += "(NULL" + strings.Repeat(",NULL", n-1) + ")"
		}
		require.NoError(t, conn.QueryRow(t.Context(), `EXPLAIN (FORMAT JSON) `+execute, pgx.QueryExecModeSimpleProtocol).Scan(&raw))
		var explained []struct{ Plan plan }
		require.NoError(t, json.Unmarshal(raw, &explained))
		plans[name] = explained[0].Plan.scans()
		require.NoError(t, conn.Close(t.Context()))
	}
	return plans
}

// The statistics of a queue table are usually stale, so plans must not depend
// on them. The test uses an empty table that was never analysed, a nearly empty
// one, 50,000 rows inserted after an analyse, the same rows analysed, and the
// table emptied afterwards. With a million rows the plans are the same.
func TestPlansDoNotDependOnStatistics(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live SET (autovacuum_enabled = off)`)
	want := map[string][]string{
		"fetch":           {"Index Scan jobs_live_lanes"},
		"fetch-named":     {"Index Scan jobs_live_expected", "Index Scan jobs_live_expected", "Index Scan jobs_live_lanes"},
		"claim":           {"Index Scan jobs_live_id"}, // scans in id order, for all statistics
		"claim-contended": {"Index Scan jobs_live_id", "Tid Scan"},
		"load":            {"Index Scan jobs_live_id"},
		"resolve":         {"Index Scan jobs_live_id"},
		"done":            {"Index Scan jobs_live_id"},
		"ended":           {"Index Scan jobs_live_id"},
		"pending":         {"Index Scan jobs_live_id"},
		"ended-before":    {"Index Scan jobs_live_id"},
		"release":         {"Index Scan jobs_live_id", "Tid Scan"},
		"adopt":           {"Index Scan jobs_live_id", "Index Scan jobs_live_id", "Tid Scan"},
		"progress":        {"Index Scan jobs_live_id", "Tid Scan"},
		"heartbeat":       {"Index Scan jobs_live_id"},
		"waiting":         {"Index Only Scan jobs_live_keyed from end to end", "Index Scan jobs_live_id"},
		"portion":         nil,
		"own-rows":        {"Index Scan jobs_live_id"},
		"locked":          {"Index Scan jobs_live_id", "Index Scan jobs_live_id"},
		"asked":           {"Index Scan jobs_live_id"},
		"cancel-idle":     nil,
	}
	const rows = 50_000
	for _, state := range []struct{ name, sql string }{
		{"empty", `SELECT`},
		{"analysed empty", `ANALYZE dispatcherd.jobs`},
		{"one row", `INSERT INTO dispatcherd.jobs (type) VALUES ('type0')`},
		{"one row, analysed", `ANALYZE dispatcherd.jobs_live`},
		{"some rows", `INSERT INTO dispatcherd.jobs (type) SELECT 'type0' FROM generate_series(1, 40)`},
		{"some rows, analysed", `ANALYZE dispatcherd.jobs_live`},
		{"some rows deleted", `DELETE FROM dispatcherd.jobs_live`},
		{"vacuumed", `VACUUM ANALYZE dispatcherd.jobs_live`},
		{"full, analysed empty", `INSERT INTO dispatcherd.jobs (type, priority, run_at)
			SELECT 'type' || i % 10, i / 10 % 11, now() - i * interval '1 ms' FROM generate_series(1, $1) i`},
		{"full, analysed", `ANALYZE dispatcherd.jobs_live`},
		{"as many expected, analysed without", `INSERT INTO dispatcherd.jobs (type, priority, run_at, expected_ms)
			SELECT 'type' || i % 10, i / 10 % 11, now() - i * interval '1 ms', 1 << i % 30 FROM generate_series(1, $1) i`},
		{"as many expected, analysed", `ANALYZE dispatcherd.jobs_live`},
		{"emptied", `DELETE FROM dispatcherd.jobs_live`},
	} {
		if strings.Contains(state.sql, "$1") {
			exec(t, db, state.sql, rows)
		} else {
			exec(t, db, state.sql)
		}
		got := plansOf(t, dsn)
		for name, scans := range got {
			slices.Sort(scans)
			require.Equal(t, want[name], scans, "%s: %s", state.name, name) // the others do not read the table
		}
	}
}

// A sweep scans the table only for strays. It releases jobs by their ids.
func TestReleaseOfASweepScansNoTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	const n = 20_000
	fill(t, db, n, 1, 1)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 77, token = 5, attempt = 1`)
	type row struct{ ID, Attempt, Token int64 }
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{int64(i + 1), 1, 5}
	}
	var raw []byte
	err := open(t, claim.Config{DSN: dsn}).OnSweep(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `EXPLAIN (FORMAT JSON) `+claim.Statements()["release"], int32(77), rows, "lost").
			Scan(&raw)
	})
	require.NoError(t, err)
	var explained []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(raw, &explained))
	require.ElementsMatch(t, []string{"Index Scan jobs_live_id", "Tid Scan"}, explained[0].Plan.scans())
}

// The sessions of callers keep plans, too, and functions keep plans in all
// sessions. Their statements are about single rows and must never scan a table.
func TestStatementsOfCallersScanNoTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, 9)`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, status, finished_at) SELECT 'pdf', 'failed', now() FROM generate_series(1, 9)`)
	exec(t, db, `ANALYZE`) // while the table fits into a page, a scan is the cheapest plan
	for _, pinned := range []bool{true, false} {
		config, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		if pinned {
			claim.Pin(config)
		}
		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		reads := func() (plain, byIndex int64) {
			require.NoError(
				t,
				conn.QueryRow(t.Context(), `SELECT sum(seq_scan), sum(idx_scan) FROM pg_stat_xact_user_tables WHERE relname ~ '^jobs_'`).
					Scan(&plain, &byIndex),
			)
			return plain, byIndex
		}
		tx, err := conn.Begin(t.Context()) // these counters are counted per transaction
		require.NoError(t, err)
		jobs := claim.Jobs{DB: conn}
		require.NoError(t, jobs.Retry(t.Context(), 10))
		_, err = jobs.Cancel(t.Context(), 10)
		require.NoError(t, err)
		if pinned {
			_, err = jobs.Get(t.Context(), 11)
			require.NoError(t, err)
			require.NoError(t, jobs.States(t.Context(), []dispatcherd.JobID{1, 11}, func(*claim.State) {}))
			_, err = jobs.Cancel(t.Context(), 11)
			require.Error(t, err, "it has ended")
		}
		plain, byIndex := reads()
		require.Zero(t, plain, "pinned: %t", pinned)
		require.NotZero(t, byIndex)
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, conn.Close(t.Context()))
	}
}

// The first rows of the lanes in (run_at, id) order are the exact top k of every
// type under any weights with ageing.
func TestFetchedLanesHoldTheExactTopKUnderAnyWeights(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	rng := rand.New(rand.NewPCG(1, 2))
	type job struct {
		id       dispatcherd.JobID
		kind     string
		priority dispatcherd.Priority
		runAt    int64
	}
	var jobs []job
	for i := range 3000 {
		kind := string(rune('a' + rng.IntN(4)))
		priority := dispatcherd.Priority(rng.IntN(11))
		due := time.Now().Add(-time.Duration(rng.IntN(50)) * 37 * time.Second).Truncate(time.Microsecond)
		jobs = append(jobs, job{dispatcherd.JobID(i + 1), kind, priority, due.UnixMicro()})
		exec(t, db, `INSERT INTO dispatcherd.jobs (id, type, priority, run_at) VALUES ($1, $2, $3, $4)`, i+1, kind, int16(priority), due)
	}
	s := open(t, claim.Config{DSN: dsn})
	const k = 25
	for range 20 {
		perPriority, perMicrosecond := rng.Int64N(4096), 1+rng.Int64N(64)
		score := func(j job) int64 { return int64(j.priority)*perPriority*62_500 - j.runAt*perMicrosecond }
		order := func(a, b job) int {
			return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id))
		}
		for _, kind := range []string{"a", "b", "c", "d"} {
			var list []contract.LaneQuery
			for p := dispatcherd.MinPriority; p <= dispatcherd.MaxPriority; p++ {
				list = append(list, contract.LaneQuery{Type: kind, Priority: p, Limit: k})
			}
			var fetched, wanted []job
			for _, c := range s.Fetch(t.Context(), contract.FetchRequest{Lanes: list}).Candidates {
				fetched = append(fetched, job{c.Key.ID, kind, list[c.Lane].Priority, c.Key.RunAt})
			}
			for _, j := range jobs {
				if j.kind == kind {
					wanted = append(wanted, j)
				}
			}
			slices.SortFunc(fetched, order)
			slices.SortFunc(wanted, order)
			require.Equal(t, wanted[:k], fetched[:k])
		}
	}
}

func TestClaimIsAHotUpdate(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	const n = 20_000
	fill(t, db, n, 1, 1)
	drain(t, s, n, 1000, lanes(1, 1, 1000))
	s.Close() // a session reports its counters at its end at the latest
	var hot, updates int64
	require.Eventually(t, func() bool {
		require.NoError(
			t,
			db.QueryRow(context.Background(), `SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'jobs_live'`).
				Scan(&hot, &updates),
		)
		return updates == n
	}, 30*time.Second, 20*time.Millisecond)
	require.GreaterOrEqual(t, hot, int64(n*99/100))
}

// While a snapshot is held, the index entries of deleted records remain. A
// heartbeat that read all of them would become slower and slower.
func TestRemovingRecordsReadsOnlyTheRemovedOnes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	exec(t, db, `VACUUM ANALYZE dispatcherd.claims`) // a plan for an empty table
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	exec(t, holder, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	exec(t, holder, `SELECT count(*) FROM dispatcherd.jobs`)
	const claims = 400
	fill(t, db, 2*claims, 1, 1)
	list := lanes(1, 1, 2)
	for range claims / 4 {
		drain(t, s, 8, 2, list)
		_, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
	}
	s.Close() // a session reports its counters at its end at the latest
	require.Eventually(t, func() bool {
		var scans, read int64
		require.NoError(t, db.QueryRow(context.Background(),
			`SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'claims_pkey'`).Scan(&scans, &read))
		require.LessOrEqual(t, read, int64(4*claims))
		return scans >= claims
	}, 30*time.Second, 20*time.Millisecond)
}
