package lint

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The limits in lines.
const (
	maxFunction = 70
	maxFile     = 500
	maxTestFile = 800
	maxP90      = 30 // the 90th percentile
)

// length returns the number of lines of a node, including the first and last.
func length(s source, n ast.Node) int {
	return positions.Position(n.End()).Line - s.line(n) + 1
}

func checkSizes(s source) []string {
	var found []string
	limit := maxFile
	if s.test() {
		limit = maxTestFile
	}
	if lines := positions.File(s.file.Pos()).LineCount(); lines > limit {
		found = append(found, s.finding(s.file, "a file of %d lines: at most %d, one concept per file", lines, limit))
	}
	if s.test() {
		return found // a test function may have any length
	}
	for _, d := range s.file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && length(s, fn) > maxFunction {
			found = append(found, s.finding(fn, "%s has %d lines: at most %d, move parts to functions", fn.Name.Name, length(s, fn), maxFunction))
		}
	}
	return found
}

func TestFunctionsAndFilesAreShort(t *testing.T) { obey(t, checkSizes) }

func TestLongFunctionsAndFilesAreRejected(t *testing.T) {
	text := func(lines int) string { return "package p\nfunc long() {" + strings.Repeat("\n", lines-1) + "}\n" }
	judge(t, checkSizes,
		example{"actor/a.go", text(70), nil},
		example{"actor/a.go", text(71), []string{"long has 71 lines: at most 70"}},
		example{"actor/a_test.go", text(71), nil},
		example{"actor/a.go", "package p\n" + strings.Repeat("\n", 500), []string{"at most 500"}},
		example{"actor/a_test.go", "package p\n" + strings.Repeat("\n", 500), nil},
		example{"actor/a_test.go", "package p\n" + strings.Repeat("\n", 800), []string{"at most 800"}},
	)
}

// p90 returns the smallest length that at least nine of ten functions do not
// exceed.
func p90(all []source) int {
	var lengths []int
	for _, s := range all {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && !s.test() {
				lengths = append(lengths, length(s, fn))
			}
		}
	}
	slices.Sort(lengths)
	return lengths[len(lengths)*9/10]
}

func TestNineOfTenFunctionsHaveAtMost30Lines(t *testing.T) {
	all, err := sources()
	require.NoError(t, err)
	require.LessOrEqual(t, p90(all), maxP90, "lines of a function, 90th percentile: shorten the longest ones")
}

func TestNineOfTenFunctionsDoNotExceedP90(t *testing.T) {
	var text strings.Builder
	text.WriteString("package p\n")
	for i := range 10 {
		fmt.Fprintf(&text, "func f%d() {%s}\n", i, strings.Repeat("\n", i))
	}
	s, err := parse("actor/a.go", text.String())
	require.NoError(t, err)
	require.Equal(t, 10, p90([]source{s}))
}

// emptyNames say nothing about the content of a file.
var emptyNames = []string{"common", "consts", "helper", "helpers", "misc", "models", "shared", "types", "util", "utils"}

func checkFileName(s source) []string {
	base := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")
	if slices.Contains(emptyNames, base) {
		return []string{s.finding(s.file, "a file named %q: name it after its concept", base)}
	}
	return nil
}

func TestFilesAreNamedAfterTheirConcept(t *testing.T) { obey(t, checkFileName) }

func TestMeaninglessFileNamesAreRejected(t *testing.T) {
	judge(t, checkFileName,
		example{"actor/types.go", "package p", []string{`"types"`}},
		example{"actor/helpers_test.go", "package p", []string{`"helpers"`}},
		example{"actor/core.go", "package p", nil},
	)
}
