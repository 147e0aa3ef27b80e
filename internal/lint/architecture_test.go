package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// codePath matches a path to a file or a folder of the repository in backquotes.
var codePath = regexp.MustCompile(
	"`((?:actor|api|backlog|claim|client|cmd|docs|e2e|internal|migrations|scoring|slotindex|tools|worker|workerproto)(?:/[A-Za-z0-9_./-]*)?)`",
)

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
	if got := missingPaths(
		filepath.Join("..", ".."),
		"see `actor/core.go` and `actor/nothing.go`",
	); !slices.Equal(
		got,
		[]string{"actor/nothing.go"},
	) {
		t.Errorf("found %q", got)
	}
}

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	identifier = regexp.MustCompile(`^[A-Za-z]\w*$`)
)

// misplacedNames returns the identifiers that a row of a table names together with a
// file that does not declare them. A row writes "`file`, `name`" or "`name` in `file`";
// a semicolon ends the scope of a file.
func misplacedNames(t *testing.T, text string) (wrong []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, part := range strings.FieldsFunc(line, func(r rune) bool { return r == '|' || r == ';' }) {
			file := ""
			var open []string // names after file
			for _, at := range codeSpan.FindAllStringSubmatchIndex(part, -1) {
				span := part[at[2]:at[3]]
				if identifier.MatchString(span) && !isPath(span) {
					open = append(open, span)
					continue
				}
				next := ""
				if isPath(span) {
					next = span
				}
				if strings.HasSuffix(part[:at[0]], " in ") {
					file = next
				}
				wrong = append(wrong, undeclared(t, file, open)...)
				file, open = next, nil
			}
			wrong = append(wrong, undeclared(t, file, open)...)
		}
	}
	return wrong
}

func isPath(span string) bool {
	_, err := os.Stat(filepath.Join(root, span))
	return err == nil
}

// undeclared returns the names that the file or folder declares neither at top level
// nor as a field.
func undeclared(t *testing.T, file string, names []string) (missing []string) {
	if file == "" || len(names) == 0 {
		return nil
	}
	all, err := sources()
	require.NoError(t, err)
	declared := map[string]bool{}
	for _, s := range all {
		if s.path != file && s.dir() != strings.TrimSuffix(file, "/") {
			continue
		}
		for n := range ast.Preorder(s.file) {
			var found []*ast.Ident
			switch n := n.(type) {
			case *ast.FuncDecl:
				found = []*ast.Ident{n.Name}
			case *ast.TypeSpec:
				found = []*ast.Ident{n.Name}
			case *ast.ValueSpec:
				found = n.Names
			case *ast.StructType:
				for _, f := range n.Fields.List {
					found = append(found, f.Names...)
				}
			}
			for _, id := range found {
				declared[id.Name] = true
			}
		}
	}
	for _, name := range names {
		if !declared[name] {
			missing = append(missing, name+" in "+file)
		}
	}
	return missing
}

func TestArchitectureNamesIdentifiersOfTheirFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range misplacedNames(t, string(text)) {
		t.Errorf("ARCHITECTURE.md names %s, which does not declare it", name)
	}
}

func TestMisplacedNamesAreReported(t *testing.T) {
	row := "| `place` | `actor/core.go`, `Core`, `placeAll`; `won`, `absent` in `actor/claim.go` | `job.go` (`Status`); `Absent` in `actor/config`; `nothing` |\n"
	if got := misplacedNames(
		t,
		row,
	); !slices.Equal(
		got,
		[]string{"placeAll in actor/core.go", "absent in actor/claim.go", "Absent in actor/config"},
	) {
		t.Errorf("found %q", got)
	}
}
