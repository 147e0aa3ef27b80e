package lint

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A long file has more than one idea, and a reader does not find the second one
// by its name. A long line is not seen completely. golangci-lint knows one
// length for all files, and no SQL.
func TestFilesAndLinesOfSQLAreShort(t *testing.T) {
	require.Len(t, tooLong("a.go", strings.Repeat("\n", 501)), 1)
	require.Empty(t, tooLong("a_test.go", strings.Repeat("\n", 501)))
	require.Len(t, tooLong("a_test.go", strings.Repeat("\n", 801)), 1)
	require.Len(t, tooLong("a.sql", "SELECT 1;\n"+strings.Repeat("é", 141)), 1)
	require.Empty(t, tooLong("a.sql", strings.Repeat("é", 140)))
	var found []string
	for _, name := range files(t, ".go", ".sql") {
		found = append(found, tooLong(name, read(t, name))...)
	}
	report(t, found)
}

func tooLong(name, text string) (found []string) {
	limit := 500
	if strings.HasSuffix(name, "_test.go") {
		limit = 800
	}
	if lines := strings.Count(text, "\n"); strings.HasSuffix(name, ".go") && lines > limit {
		found = append(found, fmt.Sprintf("%s has %d lines, at most %d: one concept per file", name, lines, limit))
	}
	for i, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(line); n > 140 && strings.HasSuffix(name, ".sql") {
			found = append(found, fmt.Sprintf("%s:%d: %d characters, at most 140: one clause per line", name, i+1, n))
		}
	}
	return found
}
