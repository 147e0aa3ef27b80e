package lint

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// A reader follows a link or a path from a document, an operator the
// runbook of an alert, and make a list of packages. Each must exist.
func TestDocumentsLeadToExistingPlaces(t *testing.T) {
	require.Equal(t, []string{"actor/none.go", "docs/none.md", "#none"}, missing(t, "README.md",
		"# The first\n`actor/core.go`, `actor/none.go` and `text/plain`, [a](docs/none.md), [b](#none), [c](#the-first), [d](https://x.y)"))
	var found []string
	for _, name := range append(files(t, ".md"), "packaging/prometheus/rules.yml") {
		if name == "CHANGELOG.md" {
			continue // it names what existed
		}
		for _, place := range missing(t, name, read(t, name)) {
			found = append(found, name+" leads to "+place+", which does not exist")
		}
	}
	require.Equal(t, []string{"./none"}, missingPackages("HOT := ./actor ./actor/... ./none\n\tgo run ./in-another-module"))
	for _, name := range missingPackages(read(t, "Makefile")) { // targets that run rarely use them
		found = append(found, "the Makefile names the package "+name+", which does not exist")
	}
	report(t, found)
}

// A browser drops the cells of a row that its table has no column for. Lines of an unfinished merge are no text.
func TestDocumentsHaveWholeTablesAndNoMergeMarks(t *testing.T) {
	require.Equal(t, []int{3, 5}, strayLines("|a|b|\n|-|-|\n|1| | text|\n\n>>>>>>> main\n```\n|1|\n"))
	var found []string
	for _, name := range files(t, ".md") {
		for _, line := range strayLines(read(t, name)) {
			found = append(found, fmt.Sprintf("%s:%d has another number of cells than its table, or the mark of a merge", name, line))
		}
	}
	report(t, found)
}

// strayLines returns the lines with another number of cells than the first row of their table, and the marks of merges.
func strayLines(text string) (lines []int) {
	columns := 0
	for i, line := range strings.Split(text, "\n") {
		cells := strings.Count(line, "|") - strings.Count(line, `\|`)
		switch {
		case strings.HasPrefix(line, "<<<<<<< "), strings.HasPrefix(line, ">>>>>>> "):
			lines = append(lines, i+1)
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case columns == 0:
			columns = cells
		case cells != columns:
			lines = append(lines, i+1)
		}
	}
	return lines
}

// missingPackages returns the packages in the variables of a Makefile that do not exist.
func missingPackages(makefile string) (stray []string) {
	for _, list := range regexp.MustCompile(`(?m)^\w+ +:= +(\./.*|\. \./.*)$`).FindAllStringSubmatch(makefile, -1) {
		for name := range strings.FieldsSeq(list[1]) {
			if !exists(strings.TrimSuffix(name, "/...")) {
				stray = append(stray, name)
			}
		}
	}
	return stray
}

var (
	codeSpan = regexp.MustCompile("`([A-Za-z0-9_.-]+/[A-Za-z0-9_./-]*)`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	runbook  = regexp.MustCompile(`runbook_url: \S+/(docs/how-to/operations\.md#\w+)`)
	fence    = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// missing returns the paths and links in a document that lead nowhere.
func missing(t *testing.T, name, text string) (places []string) {
	t.Helper()
	prose := fence.ReplaceAllString(text, "")
	for _, m := range codeSpan.FindAllStringSubmatch(prose, -1) {
		first, _, _ := strings.Cut(m[1], "/")
		if exists(first) && !exists(m[1]) && !exists(path.Join(path.Dir(name), m[1])) {
			places = append(places, m[1])
		}
	}
	links := link.FindAllStringSubmatch(prose, -1)
	for _, m := range runbook.FindAllStringSubmatch(text, -1) {
		links = append(links, []string{"", "/" + m[1]})
	}
	for _, m := range links {
		file, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		target, content := path.Join(path.Dir(name), file), text
		if strings.HasPrefix(file, "/") {
			target = file[1:]
		}
		if file != "" {
			if !exists(target) {
				places = append(places, m[1])
				continue
			}
			if anchor != "" {
				content = read(t, target)
			}
		}
		if anchor != "" && !anchors(content)[anchor] {
			places = append(places, m[1])
		}
	}
	return places
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])] = true
	}
	return found
}
