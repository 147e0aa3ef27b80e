package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// codePath matches a path to a file or a folder of the repository in backquotes.
var codePath = regexp.MustCompile("`((?:actor|api|backlog|claim|client|cmd|docs|e2e|harness|bench|internal|migrations|scoring|slotindex|tools|worker|workerproto)(?:/[A-Za-z0-9_./-]*)?)`")

// missingPaths returns the paths of the repository that a document names and that
// do not exist.
func missingPaths(root, text string) (missing []string) {
	for _, m := range codePath.FindAllStringSubmatch(text, -1) {
		path := strings.TrimSuffix(m[1], "/")
		if _, err := os.Stat(filepath.Join(root, path)); err != nil && !slices.Contains(missing, path) {
			missing = append(missing, path)
		}
	}
	return missing
}

func TestArchitectureNamesExistingFiles(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range missingPaths(root, string(text)) {
			t.Errorf("%s names %s, which does not exist", page, path)
		}
	}
}

func TestMissingPathsAreReported(t *testing.T) {
	if got := missingPaths(filepath.Join("..", ".."), "see `actor/core.go` and `actor/nothing.go`"); !slices.Equal(got, []string{"actor/nothing.go"}) {
		t.Errorf("found %q", got)
	}
}
