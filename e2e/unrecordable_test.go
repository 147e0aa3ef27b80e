package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// obstacle prevents that the end of a running job is recorded.
type obstacle struct {
	name string
	put  func(w *world, id dispatcherd.JobID) (remove func())
	why  string // in the output of job why; "" = the job ends without its payload
}

var obstacles = []obstacle{
	{"a trigger raises an error", func(w *world, id dispatcherd.JobID) func() {
		w.exec(fmt.Sprintf(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.id = %d THEN RAISE 'refused by the test'; END IF;
			RETURN NEW;
		END $$`, id))
		w.exec(`CREATE TRIGGER refuse BEFORE INSERT ON dispatcherd.jobs_done FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
		return func() { w.exec(`DROP TRIGGER refuse ON dispatcherd.jobs_done`) }
	}, "P0001"},
	{"the payload is lost", func(w *world, id dispatcherd.JobID) func() {
		w.exec(`CREATE EXTENSION IF NOT EXISTS pg_surgery`)
		w.exec(
			`UPDATE dispatcherd.jobs_live SET payload = to_jsonb((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i)) WHERE id = $1`,
			int64(id),
		)
		w.exec(`DO $$ DECLARE toast regclass; BEGIN
			SELECT reltoastrelid INTO toast FROM pg_class WHERE oid = 'dispatcherd.jobs_live'::regclass;
			EXECUTE format('SELECT heap_force_kill(%L::regclass, (SELECT array_agg(ctid) FROM %s))', toast, toast);
		END $$`)
		w.exec(`VACUUM dispatcherd.jobs_live`)
		return func() {}
	}, ""},
	{"a session has locked the row", func(w *world, id dispatcherd.JobID) func() {
		tx, err := w.db.Begin(w.t.Context())
		require.NoError(w.t, err)
		_, err = tx.Exec(w.t.Context(), `SELECT id FROM dispatcherd.jobs_live WHERE id = $1 FOR UPDATE`, int64(id))
		require.NoError(w.t, err)
		remove := func() { _ = tx.Rollback(context.Background()) }
		w.t.Cleanup(remove)
		return remove
	}, "locked by the session with process id"},
}

// Postgres does not record the end of one job. The ends of all other jobs are recorded at
// once, so after kill -9 of the dispatcher none of them runs again.
func TestEndThatCannotBeRecordedDelaysNoOtherEnd(t *testing.T) {
	for _, o := range obstacles {
		t.Run(o.name, func(t *testing.T) {
			w := newWorldAlone(t)
			cfg := w.config("d")
			cfg.Lease = 5 * time.Second
			process := w.serve(cfg)
			w.worker("w", cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
			id := w.gated(1)[0]
			remove := o.put(w, id)
			w.seen.open(t, w.seen.start(t, id, 1))
			var others []dispatcherd.JobID
			for range 100 {
				others = append(others, w.insert("x", work{}))
			}
			began := time.Now()
			for _, other := range others {
				w.await(other, dispatcherd.Done)
			}
			t.Logf("the other ends took %v", time.Since(began))
			require.NotContains(t, process.errors.text(), "Postgres does not answer")
			if o.why == "" {
				w.await(id, dispatcherd.Done)
			} else {
				shown := onDatabase(t, w.dsn, "", fmt.Sprint("job why ", id), "--api-socket", cfg.APISocket)
				require.Equal(t, exit.OK, shown.code, shown.err)
				require.Contains(t, shown.out, o.why)
				require.Contains(t, process.errors.text(), fmt.Sprintf(`"job":%d,`, id))
			}
			process.kill()
			remove()
			w.serve(cfg)
			w.await(id, dispatcherd.Done)
			w.requireOnce(others)
		})
	}
}
