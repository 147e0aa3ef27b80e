package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.." // the repository, relative to this folder

// positions contains the positions of all sources.
var positions = token.NewFileSet()

// source is one parsed Go file.
type source struct {
	path string // relative to the repository, with slashes
	file *ast.File
}

func (s source) dir() string { return path.Dir(s.path) }

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) finding(n ast.Node, what string) string {
	return fmt.Sprintf("%s:%d: %s", s.path, positions.Position(n.Pos()).Line, what)
}

// qualified returns "importpath.Name" for a name of an imported package, and "" for any other expression.
func (s source) qualified(e ast.Expr) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == id.Name {
			return p + "." + sel.Sel.Name
		}
	}
	return ""
}

func parse(t *testing.T, name string, text any) source {
	t.Helper()
	file, err := parser.ParseFile(positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	return source{name, file}
}

// files returns the files of the repository with one of the extensions, without
// what is generated or hidden.
func files(t *testing.T, extensions ...string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && name != root && (strings.HasPrefix(base, ".") || base == "node_modules" || base == "bin") {
			return filepath.SkipDir
		}
		for _, ext := range extensions {
			if filepath.Ext(base) == ext && !d.IsDir() {
				names = append(names, filepath.ToSlash(strings.TrimPrefix(name, root+string(filepath.Separator))))
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, names)
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// sources returns all Go files, also those of the modules below tools.
func sources(t *testing.T) (all []source) {
	t.Helper()
	for _, name := range files(t, ".go") {
		all = append(all, parse(t, name, read(t, name)))
	}
	return all
}

func report(t *testing.T, findings []string) {
	t.Helper()
	if len(findings) > 0 {
		t.Errorf("%d finding(s):\n%s", len(findings), strings.Join(findings, "\n"))
	}
}
