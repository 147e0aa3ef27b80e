package claim_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// sent records the statements of each operation, with their arguments.
type sent struct {
	mu   sync.Mutex
	list []pgx.TraceQueryStartData
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(data.SQL, "dispatcherd.") {
		s.list = append(s.list, data)
	}
	return ctx
}

// TraceBatchStart implements pgx.BatchTracer.
func (s *sent) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (s *sent) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: data.SQL, Args: data.Args})
}

// TraceBatchEnd implements pgx.BatchTracer.
func (s *sent) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// operations calls each operation of a controller.
func operations(t *testing.T, c *limitstore.Controller) map[string]func() {
	class := permits.Class{Keys: "k", Type: "pdf", Priority: 3}
	middle := permits.Job{RunAt: 1_700_000_000_000_000, ID: 20_000}
	list := []permits.Permit{{Class: class, Job: permits.Job{RunAt: 1_700_000_000_000_000, ID: 7}, Fence: 9,
		Counted: []permits.Start{{Key: "k", Cost: 1, Per: 1e6}}}}
	check := func(_ any, err error) { require.NoError(t, err) }
	return map[string]func(){
		"begin":     func() { _, _, err := c.Begin(t.Context()); require.NoError(t, err) },
		"limits":    func() { check(c.Limits(t.Context())) },
		"held":      func() { check(c.Held(t.Context())) },
		"arrived":   func() { _, _, err := c.Arrived(t.Context(), middle.ID, 100); require.NoError(t, err) },
		"heads":     func() { check(c.Heads(t.Context(), permits.Class{}, 100)) },
		"refill":    func() { check(c.Refill(t.Context(), []permits.Refill{{Class: class, After: middle}}, 64)) },
		"admit":     func() { check(c.Admit(t.Context(), list)) },
		"withdraw":  func() { check(c.Withdraw(t.Context(), list)) },
		"confirm":   func() { require.NoError(t, c.Confirm(t.Context(), []permits.Start{{Key: "k", Cost: 1, Per: 1e6}})) },
		"unstarted": func() { check(c.Unstarted(t.Context())) },
		"starts":    func() { check(c.Starts(t.Context(), []string{"k"})) },
		"types":     func() { check(c.Types(t.Context())) },
		"expire":    func() { check(c.Expire(t.Context())) },
		"notify":    func() { require.NoError(t, c.Notify(t.Context())) },
	}
}

// wantKeyedScans are the scans of the hot table of each operation; the others do not read it.
var wantKeyedScans = map[string][]string{
	"begin":    {"Index Scan jobs_live_permits"},
	"held":     {"Index Scan jobs_live_permits"},
	"arrived":  {"Index Scan jobs_live_permits"},
	"heads":    {"Index Scan jobs_live_keyed", "Index Scan jobs_live_keyed", "Index Scan jobs_live_keyed"},
	"refill":   {"Index Scan jobs_live_keyed"},
	"admit":    {"Index Scan jobs_live_id"},
	"withdraw": {"Index Scan jobs_live_id", "Tid Scan"},
}

// The statistics of a queue table are usually stale, so plans must not depend on them. With 50,000 waiting rows of one
// class, no operation reads more of them than it returns.
func TestPlansOfTheControllerDoNotDependOnStatistics(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live SET (autovacuum_enabled = off)`)
	exec(t, db, `UPDATE dispatcherd.controller SET dispatcher = 1, term = 1`)
	config, err := claim.SessionConfig(claim.Config{DSN: dsn})
	require.NoError(t, err)
	seen := &sent{}
	config.Tracer = seen
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	do := func(ctx context.Context, f func(claim.Session) (int, error)) error {
		_, err := f(claim.Session{Context: ctx, Conn: conn})
		return err
	}
	c := &limitstore.Controller{Dispatcher: 1, Term: 1, Do: do, Scan: do}
	statements := map[string][]pgx.TraceQueryStartData{}
	all := operations(t, c)
	all["begin"]()
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, keys) SELECT 'pdf', 'long' FROM generate_series(1, 200)`) // Heads uses both statements
	for name, do := range all {
		seen.list = nil
		do()
		statements[name] = seen.list
		require.NotEmpty(t, seen.list, name)
	}
	exec(t, db, `TRUNCATE dispatcherd.jobs_live`)
	const rows = 50_000
	for _, state := range []struct{ name, sql string }{
		{"empty", `SELECT`},
		{"analysed empty", `ANALYZE dispatcherd.jobs`},
		{"one row, analysed", `INSERT INTO dispatcherd.jobs (type, priority, keys) VALUES ('pdf', 3, 'k')`},
		{"one row, analysed", `ANALYZE dispatcherd.jobs_live`},
		{"rows without keys", `INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, 1000)`},
		{"rows without keys, analysed", `ANALYZE dispatcherd.jobs_live`},
		{"full, analysed empty", `INSERT INTO dispatcherd.jobs (type, priority, keys, run_at)
			SELECT 'pdf', 3, 'k', to_timestamp(1700000000) FROM generate_series(1, $1::int) i`},
		{"full, analysed", `ANALYZE dispatcherd.jobs_live`},
	} {
		if strings.Contains(state.sql, "$1") {
			exec(t, db, state.sql, rows)
		} else {
			exec(t, db, state.sql)
		}
		for name, list := range statements {
			var scans []string
			for _, s := range list {
				scans = append(scans, explainGeneric(t, dsn, s.SQL).scans()...)
			}
			slices.Sort(scans)
			require.Equal(t, wantKeyedScans[name], scans, "%s: %s", state.name, name)
		}
	}
	for name, list := range statements {
		for _, s := range list {
			p := explainAnalyze(t, conn, s)
			require.Less(t, p.Hit+p.Read, 400, "%s: blocks", name)
			require.Less(t, removed(p), 200, "%s: rows that a filter removes", name)
		}
	}
	exec(t, db, `DELETE FROM dispatcherd.jobs_live`)
	for name, list := range statements {
		var scans []string
		for _, s := range list {
			scans = append(scans, explainGeneric(t, dsn, s.SQL).scans()...)
		}
		slices.Sort(scans)
		require.Equal(t, wantKeyedScans[name], scans, "emptied: %s", name)
	}
}

func removed(p plan) int {
	n := p.Removed
	for _, sub := range p.Plans {
		n += removed(sub)
	}
	return n
}

// explainGeneric returns the generic plan of a statement, in a session with the settings of the store.
func explainGeneric(t *testing.T, dsn, sql string) plan {
	t.Helper()
	config, err := claim.SessionConfig(claim.Config{DSN: dsn})
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), `PREPARE s AS `+sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 's'`).Scan(&n))
	execute := `EXPLAIN (FORMAT JSON) EXECUTE s`
	if n > 0 {
		execute += "(NULL" + strings.Repeat(",NULL", n-1) + ")"
	}
	return explained(t, conn, execute, pgx.QueryExecModeSimpleProtocol)
}

func explainAnalyze(t *testing.T, conn *pgx.Conn, s pgx.TraceQueryStartData) plan {
	t.Helper()
	return explained(t, conn, `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+s.SQL, s.Args...)
}

func explained(t *testing.T, conn *pgx.Conn, sql string, args ...any) plan {
	t.Helper()
	var raw []byte
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&raw), sql)
	var list []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(raw, &list))
	return list[0].Plan
}
