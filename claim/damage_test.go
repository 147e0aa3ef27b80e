package claim_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
)

// damage are changes of a table that no program of this project makes.
type damage struct {
	losePayload func(t testing.TB, id dispatcherd.JobID) // of the row with a large payload that was inserted last
	refuse      func(t testing.TB, ids ...dispatcherd.JobID)
	move        func(t testing.TB, id dispatcherd.JobID, typ string, p dispatcherd.Priority) // to another lane, as operators do
}

func fakeDamage(db *claimfake.Database) damage {
	row := func(id dispatcherd.JobID, change func(*claimfake.Row)) {
		db.Do(func(t *claimfake.Table, _ int64) { change(t.Row(id)) })
	}
	return damage{
		losePayload: func(_ testing.TB, id dispatcherd.JobID) {
			row(id, func(r *claimfake.Row) { r.Unreadable = errors.New("missing chunk") })
		},
		refuse: func(_ testing.TB, ids ...dispatcherd.JobID) {
			for _, id := range ids {
				row(id, func(r *claimfake.Row) { r.Refused = errors.New("refused by the test") })
			}
		},
		move: func(_ testing.TB, id dispatcherd.JobID, typ string, p dispatcherd.Priority) {
			db.Do(func(t *claimfake.Table, _ int64) { t.Change(id, typ, p) })
		},
	}
}

func realDamage(db *pgx.Conn) damage {
	return damage{
		losePayload: func(t testing.TB, _ dispatcherd.JobID) { losePayload(t, db) },
		refuse: func(t testing.TB, ids ...dispatcherd.JobID) {
			exec(t, db, `CREATE TABLE public.refused AS SELECT unnest($1::bigint[]) AS id`, ids)
			exec(t, db, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF EXISTS (SELECT FROM public.refused r WHERE r.id = OLD.id) THEN RAISE 'refused by the test'; END IF;
				RETURN coalesce(NEW, OLD);
			END $$`)
			exec(t, db, `CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON dispatcherd.jobs_live FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
		},
		move: func(t testing.TB, id dispatcherd.JobID, typ string, p dispatcherd.Priority) {
			exec(t, db, `UPDATE dispatcherd.jobs SET type = $2, priority = $3 WHERE id = $1`, int64(id), typ, p)
		},
	}
}

// losePayload removes the chunks of the newest value from the TOAST table of the jobs.
// The row still refers to them, as after the loss of a page.
func losePayload(t testing.TB, db *pgx.Conn) {
	t.Helper()
	exec(t, db, `CREATE EXTENSION IF NOT EXISTS pg_surgery`)
	var toast string
	require.NoError(
		t,
		db.QueryRow(t.Context(), `SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'dispatcherd.jobs_live'::regclass`).Scan(&toast),
	)
	chunks := one[[]string](
		t,
		db,
		fmt.Sprintf(`SELECT array_agg(ctid::text) FROM %[1]s WHERE chunk_id = (SELECT max(chunk_id) FROM %[1]s)`, toast),
	)
	exec(t, db, `SELECT heap_force_kill($1::text::regclass, $2::text[]::tid[])`, toast, chunks)
	exec(t, db, `VACUUM `+toast)
}

// largePayload returns a payload that does not compress, so the table stores it apart
// from the row.
func largePayload(size int) []byte {
	raw := make([]byte, size/2)
	_, _ = rand.Read(raw) // never fails
	return fmt.Appendf(nil, `"%x"`, raw)
}
