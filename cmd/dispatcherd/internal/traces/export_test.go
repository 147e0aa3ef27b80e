package traces

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// The statements of package claim need the isolation level read committed.
func TestExportUsesReadCommittedOnEveryDatabase(t *testing.T) {
	url := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(),
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	pool, err := commands{&cli.Invocation{DSN: url}}.connect(t.Context())
	require.NoError(t, err)
	defer pool.Close()
	var level string
	require.NoError(t, pool.QueryRow(t.Context(), `SHOW transaction_isolation`).Scan(&level))
	require.Equal(t, "read committed", level)
}
