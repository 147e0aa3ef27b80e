package lint

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var namedTest = regexp.MustCompile("`(Test[A-Z]\\w*)`")

// unknownTests returns the tests that a document names and that do not exist.
func unknownTests(text string, exists map[string]bool) (unknown []string) {
	for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
		if !exists[m[1]] {
			unknown = append(unknown, m[1])
		}
	}
	return unknown
}

// untestedPromises returns the kinds of attackers (items that begin in bold) and the sections that
// name no test. A section of advice is in untestable.
func untestedPromises(text string) (found []string) {
	for section := range strings.SplitSeq("\n"+text, "\n#") {
		title, body, _ := strings.Cut(strings.TrimLeft(section, "# "), "\n")
		if !untestable[title] && !namedTest.MatchString(body) {
			found = append(found, title)
		}
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "- **") && !namedTest.MatchString(line) {
				found = append(found, line[:min(len(line), 40)])
			}
		}
	}
	return found
}

// untestable are the sections of docs/security.md without a promise, and Service, which make lint checks.
var untestable = map[string]bool{"": true, "Security": true, "Service": true, "Reporting": true}

func TestDocumentsNameExistingTests(t *testing.T) {
	all, err := sources()
	require.NoError(t, err)
	exists := map[string]bool{}
	for _, s := range all {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && s.test() {
				exists[fn.Name.Name] = true
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	var found []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range unknownTests(string(text), exists) {
			found = append(found, fmt.Sprintf("docs/%s names %s, which does not exist", filepath.Base(page), name))
		}
	}
	report(t, found)
}

func TestEachPromiseOfSecurityNamesATest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	require.NoError(t, err)
	report(t, untestedPromises(string(text)))
}

func TestPromisesWithoutATestAreRejected(t *testing.T) {
	require.Equal(t, []string{"TestB"}, unknownTests("`TestA` holds it, `TestB` and Testing do not", map[string]bool{"TestA": true}))
	text := "# Security\n\nIntroduction.\n\n## Attackers\n\n- **One** `TestA`\n- **Two** nothing\n\n## Roles\n\nNothing.\n\n### Types\n\n`TestA`\n\n## Reporting\n\nMail.\n"
	require.Equal(t, []string{"- **Two** nothing\n", "Roles"}, untestedPromises(text))
}
