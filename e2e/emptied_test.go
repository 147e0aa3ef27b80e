package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
)

// tables are all tables except the one of the version, as suites of tests name them.
const tables = `SELECT array_agg(format('dispatcherd.%I', tablename) ORDER BY tablename) FROM pg_tables
	WHERE schemaname = 'dispatcherd' AND tablename <> 'schema_version' AND NOT starts_with(tablename, 'jobs_')`

// Suites of tests empty all tables between two tests, in one statement or one table after the other, while a daemon runs. Ids begin
// with 1 again.
func TestEverythingWorksAgainAfterTheTablesWereEmptied(t *testing.T) {
	for name, empty := range map[string]func(w *world, tables []string){
		"TRUNCATE": func(w *world, _ []string) {
			page, err := os.ReadFile("../docs/how-to/operations.md")
			require.NoError(w.t, err)
			_, statement, _ := strings.Cut(string(page), "truncates all tables except `schema_version`:\n\n```sql\n")
			statement, _, _ = strings.Cut(statement, "```")
			for {
				_, err := w.db.Exec(w.t.Context(), statement)
				if claim.AnswerCode(err) != "40P01" { // a deadlock with a statement of a daemon
					require.NoError(w.t, err)
					break
				}
			}
			require.NotZero(w.t, w.number(`SELECT count(*) FROM dispatcherd.schema_version`))
		},
		"DELETE": func(w *world, tables []string) {
			for _, table := range tables {
				w.exec(`DELETE FROM ` + table)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config("a")
			w.start(cfg)
			w.start(w.config("b"))
			w.worker("w", cfg.WorkerSocket, oneSlot("x"))
			var list []string
			require.NoError(t, w.db.QueryRow(t.Context(), tables).Scan(&list))
			for range 3 {
				w.exec(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('k', 1)`)
				w.exec(`INSERT INTO dispatcherd.jobs (type, keys) VALUES ('x', NULL), ('x', 'k'), ('x', 'k'), ('x', 'other')`)
				w.exec(`INSERT INTO dispatcherd.schedules (name, spec, type) VALUES ('s', '* * * * * *', 'x')`)
				w.exec(`SELECT dispatcherd.insert_unique('{"type": "x"}', 'u', '1 day')`)
				w.exec(`SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}')`)
				w.awaitTicks("s", "run", 1)
				eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`) >= 8 },
					func() string { return "plain, unique, keyed and dependent jobs, and those of the schedule, are done" })
				empty(w, list)
				w.exec(`ALTER SEQUENCE dispatcherd.job_ids RESTART`)
			}
		})
	}
}
