package migrations_test

import (
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// The limit applies to the uncompressed size, which a dispatcher reads.
func TestPayloadSizeIsMeasuredUncompressed(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `CREATE TABLE public.documents (doc jsonb)`)
	insert := func(doc string) error {
		exec(t, conn, `TRUNCATE public.documents`)
		exec(t, conn, `INSERT INTO public.documents SELECT `+doc)
		var stored int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT pg_column_size(doc) FROM public.documents`).Scan(&stored))
		require.Less(t, stored, 100_000, "the value must be compressed for this test")
		_, err := conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, payload) SELECT 'pdf', doc FROM public.documents`)
		return err
	}
	for _, large := range []string{
		`jsonb_build_object('text', repeat('a', 1000000))`,
		`to_jsonb(repeat('a', 1000000))`,
		`to_jsonb(array_fill('a'::text, ARRAY[200000]))`,
	} {
		require.ErrorContains(t, insert(large), "payload_is_at_most_1_megabyte", large)
	}
	require.NoError(t, insert(`jsonb_build_object('text', repeat('a', 999900))`))
}
