package migrations_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// Producers whose transactions are serializable insert at the same time. Postgres cancels a transaction if it has read what another one
// has written, and the other way round; for indexes it compares pages.
func TestSerializableProducersDoNotConflict(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('a', '1 hour', true)`)
	batch := one[int64](t, conn, `SELECT dispatcherd.open_batch()`)
	producers := make([]*pgx.Conn, 8)
	for i := range producers {
		producers[i] = connect(t, dsn)
	}
	for _, statement := range []string{
		`INSERT INTO dispatcherd.jobs (type) VALUES ('pdf')`,
		`INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', 'k%d')`,
		`INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, 3)`,
		`INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', 'a%d')`,
		fmt.Sprintf(`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('pdf', %d)`, batch),
		fmt.Sprintf(`SELECT dispatcherd.insert_member(%d, '{"type": "pdf"}')`, batch),
		`SELECT dispatcherd.insert_unique('{"type": "pdf"}', 'b%d')`,
		`SELECT dispatcherd.insert_unique('{"type": "pdf"}', 'c%d', '1 hour')`,
		`SELECT dispatcherd.open_batch('{"type": "pdf"}')`,
		`INSERT INTO dispatcherd.limits (key) VALUES ('a%d')`,
	} {
		for round := range 2 { // in the second one, each writes after all have read
			for i, p := range producers {
				if round == 0 {
					exec(t, p, `BEGIN ISOLATION LEVEL SERIALIZABLE`)
				}
				_, err := p.Exec(t.Context(), strings.ReplaceAll(statement, "%d", strconv.Itoa(10*i+round)))
				require.NoError(t, err, statement)
			}
		}
		for _, p := range producers {
			_, err := p.Exec(t.Context(), `COMMIT`)
			require.NoError(t, err, statement)
		}
	}
	exec(t, conn, `BEGIN ISOLATION LEVEL SERIALIZABLE`)
	require.False(t, one[bool](t, conn, `SELECT inserted FROM dispatcherd.insert_unique('{"type": "pdf"}', 'c0', '1 hour')`), "it is reserved")
	exec(t, conn, `COMMIT`)
}

// Postgres cannot prepare a transaction that has notified.
func TestTransactionWithoutNotificationsCanBePrepared(t *testing.T) {
	server, err := devpg.Start(t.Context(), devpg.Options{Ephemeral: true, Settings: map[string]string{"max_prepared_transactions": "10"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	dsn := server.URL("postgres")
	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	conn := connect(t, dsn)
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('a', '1 hour', true)`)
	statements := []string{
		`INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', NULL), ('pdf', 'k')`,
		`SELECT dispatcherd.seal_batch(dispatcherd.open_batch('{"type": "pdf"}'))`,
		`SELECT dispatcherd.insert_flow(jsonb_build_object('nodes', jsonb_build_array(jsonb_build_object('name', 'a', 'type', 'pdf', 'after',
			jsonb_build_array((SELECT min(id) FROM dispatcherd.jobs))))))`,
		`INSERT INTO dispatcherd.limits (key) VALUES ('k')`,
		`INSERT INTO dispatcherd.schedules (name, spec, type) VALUES ('a', '* * * * *', 'pdf')`,
		`INSERT INTO dispatcherd.operations (kind, target) VALUES ('cancel', 1)`,
	}
	for i, statement := range statements {
		exec(t, conn, `BEGIN`)
		exec(t, conn, statement)
		_, err := conn.Exec(t.Context(), `PREPARE TRANSACTION 'x'`)
		require.ErrorContains(t, err, "NOTIFY", statement)
		exec(t, conn, `BEGIN`)
		exec(t, conn, `SET LOCAL dispatcherd.notify = off`)
		exec(t, conn, statement)
		exec(t, conn, fmt.Sprintf(`PREPARE TRANSACTION '%d'`, i))
		exec(t, conn, fmt.Sprintf(`COMMIT PREPARED '%d'`, i))
	}
	require.Equal(t, 4, one[int](t, conn, `SELECT count(*) FROM dispatcherd.jobs`), "two jobs, a callback and a node")
}
