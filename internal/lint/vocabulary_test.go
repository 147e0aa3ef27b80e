package lint

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/lint/vocabulary"
)

func TestNoReplacedWordIsUsed(t *testing.T) {
	found, err := vocabulary.Tree(root)
	require.NoError(t, err)
	if len(found) == 0 {
		return
	}
	var lines []string
	for _, f := range found {
		lines = append(lines, f.String())
	}
	slices.Sort(lines)
	t.Errorf("%d replaced words (make measures V=1 prints all):\n%s", len(found), strings.Join(lines[:min(len(lines), 50)], "\n"))
}

func TestReplacedWordsAreRejected(t *testing.T) {
	require.NotEmpty(t, vocabulary.File("actor/a.go", "package actor\n\nvar phantom int\n"))
	require.NotEmpty(t, vocabulary.File("docs/a.md", "Nobody waits.\n"))
	require.Empty(t, vocabulary.File("docs/a.md", "No worker waits.\n"))
}
