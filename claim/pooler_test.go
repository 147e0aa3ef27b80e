package claim_test

import (
	"testing"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A pooler refuses connections with settings that it does not know.
// PgBouncer knows application_name.
func TestSettingsAreSentAfterTheConnectionIsEstablished(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t) + "&enable_seqscan=on&search_path=public&TimeZone=Asia/Tokyo"
	config, err := claim.SessionConfig(claim.Config{DSN: dsn})
	require.NoError(t, err)
	require.Len(t, config.RuntimeParams, 1)
	require.Contains(t, config.RuntimeParams, "application_name")
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	for name, want := range map[string]string{
		"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan", "search_path": "pg_catalog", "TimeZone": "UTC",
		"statement_timeout": "4s", "lock_timeout": "4s", "jit": "off", "default_transaction_isolation": "read committed",
	} {
		var have string
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW "+name).Scan(&have))
		require.Equal(t, want, have, name)
	}
}
