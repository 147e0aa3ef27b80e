package migrations_test

import (
	"fmt"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
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
		require.ErrorContains(t, insert(large), "payload_is_at_most_1_megabyte_and_8_as_text", large)
	}
	require.NoError(t, insert(`jsonb_build_object('text', repeat('a', 999900))`))
}

// numbers is the SQL expression of a payload of n equal numbers.
func numbers(number string, n int) string {
	return fmt.Sprintf(`('['||repeat('%s,',%d)||'%s]')::jsonb`, number, n-1, number)
}

func TestPayloadThatIsTooLongAsTextIsRejected(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	insert := func(payload string) error {
		_, err := conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, payload) VALUES ('pdf', `+payload+`)`)
		return err
	}
	for _, long := range []string{
		numbers("1e131071", 8201), numbers("-1e131071", 2000), numbers("1e131071", 70), numbers("1e1000", 58000),
		numbers("1e-16383", 600), numbers("0e-16383", 80000), numbers("0e-1024", 80000),
		`jsonb_build_object('a', jsonb_build_array(jsonb_build_object('b', ` + numbers("1e131071", 600) + `)))`,
	} {
		require.ErrorContains(t, insert(long), "payload_is_at_most_1_megabyte_and_8_as_text", long)
	}
	for _, legal := range []string{
		numbers("1.7976931348623157e308", 5000), numbers("1e1023", 8000), numbers("5e-324", 20000), numbers("0e-1024", 8000),
		numbers("1e131071", 10), `jsonb_build_object('a', repeat(E'\\', 900000))`,
	} {
		require.NoError(t, insert(legal), legal)
	}
	require.Error(t, insert(numbers("1e1023", 8200)))
	require.LessOrEqual(t, one[int](t, conn, `SELECT max(octet_length(payload::text)) FROM dispatcherd.jobs`), jsontext.MaxText)
}

// The domain does not convert a payload of 900 bytes to text. The longest number of jsonb
// has 131,072 digits before the point and 16,383 after it.
func TestSmallPayloadIsNeverTooLongAsText(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	const longest = `-(('1' || repeat('0', 131071) || '.' || repeat('0', 16383))::numeric)`
	size, text := 0, 0
	for n := 50; size <= 900; n++ {
		require.LessOrEqual(t, text, jsontext.MaxText)
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT pg_column_size(j), octet_length(j::text)
			FROM (SELECT to_jsonb(array_fill(`+longest+`, ARRAY[$1::int])) AS j) payload`, n).Scan(&size, &text))
	}
}

// A payload of JSON null is a value: only an absent payload means the default.
func TestPayloadNullStaysNullInAllFunctions(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `SELECT dispatcherd.open_batch()`)
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type, payload) VALUES ('a insert', 'null')`)
	exec(t, conn, `SELECT dispatcherd.insert_unique('{"type": "b unique", "payload": null}', 'u'),
		dispatcherd.insert_unique('{"type": "c reserved", "payload": null}', 'v', '1 day'),
		dispatcherd.insert_member(1, '{"type": "d member", "payload": null}'),
		dispatcherd.insert_flow('{"nodes": [{"name": "x", "type": "e node", "payload": null},
			{"name": "y", "type": "f waiting node", "payload": null, "after": ["x"]}]}')`)
	require.Equal(t, "a insert, b unique, c reserved, d member, e node, f waiting node", one[string](t, conn,
		`SELECT string_agg(type, ', ' ORDER BY type) FROM dispatcherd.jobs WHERE payload = 'null'`))
	exec(t, conn, `SELECT dispatcherd.insert_unique('{"type": "g"}', 'w'), dispatcherd.insert_member(1, '{"type": "g"}'),
		dispatcherd.insert_flow('{"nodes": [{"name": "x", "type": "g"}]}')`)
	require.Equal(t, 3, one[int](t, conn, `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'g' AND payload = '{}'`))
}
