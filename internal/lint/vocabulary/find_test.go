package vocabulary

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIdentifiersAreSplitAtCaseAndUnderscore(t *testing.T) {
	require.Equal(t, []string{"foreign", "lanes"}, Split("foreignLanes"))
	require.Equal(t, []string{"http", "server"}, Split("HTTPServer"))
	require.Equal(t, []string{"run", "at", "id"}, Split("run_at ID"))
	require.Equal(t, []string{"poll", "deaf"}, Split("--poll-deaf"))
	require.Empty(t, Split("42 …"))
}

// found returns the words found in a file, in order.
func found(file, text string) []string {
	var words []string
	for _, f := range File(file, text) {
		words = append(words, f.Word)
	}
	return words
}

func TestInventedWordsAreRejectedInEveryText(t *testing.T) {
	for _, c := range []struct {
		file, text string
		want       []string
	}{
		{"actor/a.go", "package actor\n\nvar phantomKey int\n", []string{"phantom"}},
		{"actor/a.go", "package actor\n\nfunc f() { rungBell := 1; _ = rungBell }\n", []string{"bell", "bell"}},
		{"actor/bell.go", "package actor\n", []string{"bell"}},
		{"claim/a.go", "package claim\n\n// It lets nobody wait.\n", []string{"nobody"}},
		{"claim/a.go", "package claim\n\nconst q = `WITH bell AS (SELECT 1)`\n", []string{"bell"}},
		{"claim/q.sql", "SELECT phantom FROM t;\n", []string{"phantom"}},
		{"cmd/dispatcherd/a.go", "package main\n\nconst flag = \"poll-deaf\"\n", []string{"deaf"}},
		{"docs/a.md", "Somebody stranded\nthe job.\n", []string{"somebody", "stranded"}},
		{"actor/testdata/bell_storm.txt", "# One slot.\n", []string{"bell", "storm"}},
		{"docs/a.md", "A slow reader never blocks other sessions.\n", nil},
	} {
		require.Equal(t, c.want, found(c.file, c.text), "%s\n%s", c.file, c.text)
	}
}

func TestOrdinaryWordsAreRejectedOnlyAsNamesOfTheirPackages(t *testing.T) {
	for _, c := range []struct {
		file, text string
		want       []string
	}{
		{"actor/a.go", "package actor\n\ntype kinds struct{}\n", []string{"kinds"}},
		{"actor/a.go", "package actor\n\ntype t struct{ kinds []int }\n", []string{"kinds"}},
		{"actor/a.go", "package actor\n\nfunc (c *Core) evict() {}\n", []string{"evict"}},
		{"actor/kinds.go", "package actor\n", []string{"kinds"}},
		{"actor/a.go", "package actor\n\n// This kind of event is rare.\nfunc f() { kind := 1; _ = kind }\n", nil},
		{"internal/httpapi/a.go", "package api\n\ntype kinds struct{}\n", nil},
		{"internal/httpapi/a.go", "package api\n\ntype run struct{}\n", []string{"run"}},
		{"actor/a.go", "package actor\n\ntype run struct{}\n", nil},
		{"internal/carry/a.go", "package carry\n", []string{"carry"}},
		{"internal/x/a.go", "package x\n\n// Frames carry an id.\n", nil},
	} {
		require.Equal(t, c.want, found(c.file, c.text), "%s\n%s", c.file, c.text)
	}
}

func TestFindingsSayWhereAndWhatToWrite(t *testing.T) {
	all := File("docs/storm.md", "A\nphantom\n")
	require.Len(t, all, 2)
	require.Contains(t, all[0].String(), `docs/storm.md: the file name contains "storm": use `)
	require.Contains(t, all[1].String(), `docs/storm.md:2: "phantom": use upper bound`)
}

func TestExceptionsHoldForTheirFilesAndWordsOnly(t *testing.T) {
	defer func(saved []exception) { exceptions = saved }(exceptions)
	exceptions = []exception{{path: "docs/a.md", words: "journal", line: "systemd", reason: "test"}}
	require.Empty(t, found("docs/a.md", "systemd journal\n"))
	require.Equal(t, []string{"journal"}, found("docs/a.md", "the journal\n"))
	require.Equal(t, []string{"journal"}, found("docs/b.md", "systemd journal\n"))
	require.Equal(t, []string{"storm"}, found("docs/a.md", "systemd storm\n"))
}

func TestEveryExceptionHasAReason(t *testing.T) {
	for _, e := range exceptions {
		require.NotEmpty(t, e.path)
		require.NotEmpty(t, e.reason, e.path)
	}
}
