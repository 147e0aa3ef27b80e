package lint

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxTerms bounds the glossary.
const maxTerms = 60

// glossaryTerms returns the first column of the table in a glossary.
func glossaryTerms(text string) []string {
	var terms []string
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		if term := strings.TrimSpace(cells[1]); term != "term" && strings.Trim(term, "-") != "" {
			terms = append(terms, term)
		}
	}
	return terms
}

func checkGlossary(terms []string) []string {
	var found []string
	if len(terms) > maxTerms {
		found = append(found, "the glossary has too many terms: use an established term that needs no entry")
	}
	if !slices.IsSortedFunc(terms, func(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) }) {
		found = append(found, "the glossary is not sorted")
	}
	return found
}

func TestTheGlossaryIsSortedAndShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "glossary.md"))
	require.NoError(t, err)
	terms := glossaryTerms(string(text))
	require.NotEmpty(t, terms)
	report(t, checkGlossary(terms))
}

func TestGlossaryRuleRejectsDisorderAndExcess(t *testing.T) {
	require.Equal(t, []string{"a", "b"}, glossaryTerms("| term | meaning | origin |\n|---|---|---|\n| a | x | y |\n| b | x | y |\n"))
	require.Empty(t, checkGlossary([]string{"a", "b"}))
	require.Len(t, checkGlossary([]string{"b", "a"}), 1)
	require.Len(t, checkGlossary(slices.Repeat([]string{"a"}, maxTerms+1)), 1)
}
