package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// schemaText returns the files of the schema, one after the other.
func schemaText(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob("schema/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var text strings.Builder
	for _, file := range files {
		part, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(part)
	}
	return text.String()
}

// created returns the sorted names of the objects of a kind that the files create. Each name occurs once.
func created(t testing.TB, text, kind string) []string {
	t.Helper()
	var names []string
	pattern := regexp.MustCompile(`(?m)^CREATE (?:UNIQUE |UNLOGGED )?` + kind + ` (?:dispatcherd\.)?(\w+)`)
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// strangers returns the functions of the database whose text is in no file. The text of a function with a SQL-standard body is stored as
// a tree, so only its name is compared.
func strangers(t testing.TB, conn *pgx.Conn, text string) (names []string) {
	t.Helper()
	for _, f := range list[[]string](t, conn, `SELECT ARRAY[proname::text, prosrc] FROM pg_proc
		WHERE pronamespace = 'dispatcherd'::regnamespace`) {
		if !strings.Contains(text, f[1]) {
			names = append(names, f[0])
		}
	}
	return names
}

func TestFilesAndMigratedDatabaseAgree(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	text := schemaText(t)
	for kind, query := range map[string]string{
		"FUNCTION": `SELECT proname::text FROM pg_proc WHERE pronamespace = 'dispatcherd'::regnamespace`,
		"VIEW":     `SELECT relname::text FROM pg_class WHERE relnamespace = 'dispatcherd'::regnamespace AND relkind IN ('v', 'm')`,
		"TRIGGER": `SELECT tgname::text FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
			WHERE relnamespace = 'dispatcherd'::regnamespace AND NOT tgisinternal AND tgparentid = 0`,
		"TABLE": `SELECT relname::text FROM pg_class WHERE relnamespace = 'dispatcherd'::regnamespace AND relkind IN ('r', 'p')
			AND relname !~ '_[0-9]{8}$' AND relname <> 'schema_version'`,
		"INDEX": `SELECT c.relname::text FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE relnamespace = 'dispatcherd'::regnamespace
			AND NOT relispartition AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = c.oid)`,
	} {
		require.ElementsMatch(t, created(t, text, kind), list[string](t, conn, query), "%s: the files and the database", kind)
	}
	require.Empty(t, strangers(t, conn, text), "functions whose text is in no file")
	require.Equal(t, migrations.Baseline, one[int](t, conn, `SELECT dispatcherd.compatible_from()`))
}

// A function whose text is patched is the fault that the test above must find.
func TestPatchedFunctionIsFound(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `DO $$ BEGIN EXECUTE replace(pg_get_functiondef('dispatcherd.end_idle'::regproc), '; ', ' ; '); END $$`)
	require.Equal(t, []string{"end_idle"}, strangers(t, conn, schemaText(t)))
}

func TestSchemaIsReadable(t *testing.T) {
	files, err := filepath.Glob("schema/*.sql")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 140, "%s:%d", file, i+1)
		}
		require.NotRegexp(t, `pg_get_\w+def|CREATE OR REPLACE`, string(text), "%s: each object has one text", file)
		if filepath.Base(file) != "9_rights.sql" { // which is executed again for roles that are created later
			require.NotRegexp(t, `(?m)^\s*GRANT `, string(text), file) // a hint for users may contain the word
		}
	}
}
