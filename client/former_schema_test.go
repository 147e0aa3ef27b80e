package client

import (
	"iter"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// Programs insert jobs without keys also before the migration that adds keys.
func TestJobsWithoutKeysAreInsertedIntoAFormerSchema(t *testing.T) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, pgtest.New(t))
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `ALTER TABLE dispatcherd.jobs RENAME COLUMN keys TO former`)
	require.NoError(t, err)
	jobs := claim.Jobs{DB: conn}
	rows := func(n claim.New) iter.Seq2[claim.New, error] {
		return func(yield func(claim.New, error) bool) { yield(n, nil) }
	}

	_, err = Insert(ctx, conn, Job{Type: "pdf"})
	require.NoError(t, err)
	_, err = InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}}))
	require.NoError(t, err)
	_, err = jobs.Insert(ctx, claim.New{Type: "pdf"})
	require.NoError(t, err)
	_, err = jobs.InsertMany(ctx, rows(claim.New{Type: "pdf"}))
	require.NoError(t, err)

	_, err = Insert(ctx, conn, Job{Type: "pdf", Keys: "a"})
	require.ErrorContains(t, err, "keys")
	_, err = InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}, {Type: "pdf", Keys: "a"}}))
	require.ErrorContains(t, err, "keys: the database takes no jobs with this column")
	_, err = jobs.Insert(ctx, claim.New{Type: "pdf", Keys: "a"})
	require.ErrorContains(t, err, "keys")
	_, err = jobs.InsertMany(ctx, rows(claim.New{Type: "pdf", Keys: "a"}))
	require.ErrorContains(t, err, "keys: the database takes no jobs with this column")
	var n int
	require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs`).Scan(&n))
	require.Equal(t, 4, n)
}
