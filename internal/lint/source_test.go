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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root   = "../.." // path of the module, relative to this folder
	module = "github.com/dispatcherd/dispatcherd"
)

// source is one parsed Go file.
type source struct {
	path string // relative to the module, with slashes
	file *ast.File
}

func (s source) dir() string {
	if d := path.Dir(s.path); d != "." {
		return d
	}
	return ""
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// in reports whether the file is in one of the folders or below.
func (s source) in(dirs ...string) bool {
	for _, d := range dirs {
		if s.dir() == d || strings.HasPrefix(s.dir(), d+"/") {
			return true
		}
	}
	return false
}

func (s source) line(n ast.Node) int { return positions.Position(n.Pos()).Line }

// finding formats "file:line: what: what to do".
func (s source) finding(n ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.line(n), fmt.Sprintf(format, args...))
}

// imports returns the import specs by path.
func (s source) imports() map[string]*ast.ImportSpec {
	found := map[string]*ast.ImportSpec{}
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		found[p] = spec
	}
	return found
}

// callee returns the function that a call names as "package.Function", with the
// imported name of the package, or "" for any other call.
func (s source) callee(call *ast.CallExpr) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		return s.qualified(sel)
	}
	return ""
}

// qualified returns "importpath.Name" for a name of an imported package.
func (s source) qualified(sel *ast.SelectorExpr) string {
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for p, spec := range s.imports() {
		name := path.Base(p)
		if name == "v2" || name == "v5" {
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == id.Name {
			return p + "." + sel.Sel.Name
		}
	}
	return ""
}

// visit calls f for every node of the file.
func (s source) visit(f func(ast.Node)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if n != nil {
			f(n)
		}
		return true
	})
}

// positions contains the positions of all sources. The type checker needs it.
var positions = token.NewFileSet()

func parse(name string, text any) (source, error) {
	file, err := parser.ParseFile(positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{path: name, file: file}, err
}

// sources parses every Go file of the module once.
var sources = sync.OnceValues(func() ([]source, error) {
	var all []source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(name, d.Name())
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), text)
		all = append(all, s)
		return err
	})
	return all, err
})

// skipFolder skips the folders that the go command skips: hidden folders, testdata
// and other modules.
func skipFolder(name, base string) error {
	if name == root {
		return nil
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	if err == nil || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return filepath.SkipDir
	}
	return nil
}

// rule checks one file and returns its findings.
type rule func(source) []string

// obey applies a rule to the module and requires that it finds nothing.
func obey(t *testing.T, check rule) {
	t.Helper()
	all, err := sources()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	var findings []string
	for _, s := range all {
		findings = append(findings, check(s)...)
	}
	report(t, findings)
}

func report(t *testing.T, findings []string) {
	t.Helper()
	if len(findings) > 0 {
		t.Errorf("%d finding(s):\n%s", len(findings), strings.Join(findings, "\n"))
	}
}

// example is a small source with the expected findings, each given by a part of its
// message. A source without findings is valid.
type example struct {
	path string
	text string
	want []string
}

// judge applies a rule to examples. At least one example must have a finding.
func judge(t *testing.T, check rule, examples ...example) {
	t.Helper()
	bad := 0
	for _, e := range examples {
		s, err := parse(e.path, e.text)
		require.NoError(t, err, e.text)
		got := check(s)
		require.Len(t, got, len(e.want), "%s\n%s\n%s", e.path, e.text, strings.Join(got, "\n"))
		for i, want := range e.want {
			require.Contains(t, got[i], want)
		}
		bad += len(e.want)
	}
	require.Positive(t, bad, "at least one example must break the rule")
}
