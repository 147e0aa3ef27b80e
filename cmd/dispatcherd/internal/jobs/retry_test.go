package jobs

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestRetryOfManyJobsRetriesAll(t *testing.T) {
	const n = 2*claim.MaxChanged + 7
	url := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, status, finished_at, failures)
		SELECT CASE WHEN i <= $1 THEN 'pdf' ELSE 'excel' END, 'failed', now(), 5 FROM generate_series(1, $1 + 3) i`, n)
	require.NoError(t, err)

	a, out, _ := on(url, "")
	f := contract.Filter{Type: "pdf", Statuses: []dispatcherd.Status{dispatcherd.Failed}}
	require.NoError(
		t,
		a.changeAll(t.Context(), table{claim.Jobs{DB: conn}}, change{op: contract.RetryJobs, did: "retried"}, f, consent{yes: true, count: -1}),
	)
	require.Equal(t, fmt.Sprintf("%d jobs retried\n", n), out.String())
	rows, err := conn.Query(
		t.Context(),
		`SELECT concat_ws(' ', type, status, count(*)) FROM dispatcherd.jobs GROUP BY type, status ORDER BY type`,
	)
	require.NoError(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"excel failed 3", fmt.Sprintf("pdf pending %d", n)}, texts)
}
