package claim

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// Dispatchers read what others have learned as sums, and their own rows under their name. Rows that are a week old do not
// count, and are deleted by the next one that learns something.
func TestLearnedDurationsAreShared(t *testing.T) {
	db, err := pgxpool.New(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	defer db.Close()
	a, b, c := Durations{DB: db, Name: "a"}, Durations{DB: db, Name: "b"}, Durations{DB: db, Name: "c"}
	own, others, err := a.Share(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, own)
	require.Empty(t, others)

	plain := contract.Durations{Type: "pdf", N: 1024, S: 10}
	hinted := contract.Durations{Type: "pdf", Class: 8, N: 2048, S: 20}
	own, others, err = a.Share(t.Context(), []contract.Durations{plain, hinted})
	require.NoError(t, err)
	require.Equal(t, []contract.Durations{plain, hinted}, own)
	require.Empty(t, others)
	hinted.N = 3000
	_, _, err = b.Share(t.Context(), []contract.Durations{{Type: "pdf", Class: 8, N: 1, S: 2}})
	require.NoError(t, err)
	_, _, err = a.Share(t.Context(), []contract.Durations{hinted})
	require.NoError(t, err)

	own, others, err = c.Share(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, own)
	require.Equal(t, []contract.Durations{plain, {Type: "pdf", Class: dispatcherd.DurationClass(8), N: 3001, S: 22}}, others)

	_, err = db.Exec(t.Context(), `UPDATE dispatcherd.durations SET learned_at = learned_at - interval '8 days' WHERE dispatcher = 'a'`)
	require.NoError(t, err)
	_, others, err = c.Share(t.Context(), []contract.Durations{plain})
	require.NoError(t, err)
	require.Equal(t, []contract.Durations{{Type: "pdf", Class: 8, N: 1, S: 2}}, others)
	rows := 0
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM dispatcherd.durations`).Scan(&rows))
	require.Equal(t, 2, rows)
}
