package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const orderFree = "// order-free:"

// checkMapOrder finds loops over maps in the core, and calls that list a map. It
// needs type information; info may be incomplete if an import is missing.
func checkMapOrder(s source, info *types.Info) []string {
	if !isPure(s) || isShell(s) {
		return nil
	}
	excused := map[int]bool{}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if reason, ok := strings.CutPrefix(c.Text, orderFree); ok && len(strings.Fields(reason)) >= 2 {
				excused[s.line(c)] = true
			}
		}
	}
	var found []string
	s.visit(func(n ast.Node) {
		what := ""
		switch n := n.(type) {
		case *ast.RangeStmt:
			if t := info.TypeOf(n.X); t != nil && isMap(t) {
				what = "a loop over a map"
			}
		case *ast.SelectorExpr:
			switch s.qualified(n) {
			case "maps.All", "maps.Keys", "maps.Values", "maps.Collect":
				what = "maps." + n.Sel.Name
			}
		}
		if what != "" && !excused[s.line(n)] {
			found = append(
				found,
				s.finding(
					n,
					"%s: decisions must not depend on map order; use a slice, or state in the same line why the order does not matter: %s a reason of two words or more",
					what,
					orderFree,
				),
			)
		}
	})
	return found
}

func isMap(t types.Type) bool {
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// exports resolves imports from the export data of the compiler.
func exports(t *testing.T, packages ...string) types.Importer {
	t.Helper()
	out := goList(t, append([]string{"-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)...)
	files := map[string]string{}
	for line := range strings.Lines(out) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[name] = file
	}
	return importer.ForCompiler(positions, "gc", func(name string) (io.ReadCloser, error) {
		if files[name] == "" {
			return nil, fmt.Errorf("no export data of %q", name)
		}
		return os.Open(files[name])
	})
}

// typed checks the types of the non-test files of one package.
func typed(name string, files []source, imp types.Importer) (*types.Info, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	var trees []*ast.File
	for _, s := range files {
		trees = append(trees, s.file)
	}
	_, err := (&types.Config{Importer: imp}).Check(name, positions, trees, info)
	return info, err
}

func TestNoDecisionDependsOnMapOrder(t *testing.T) {
	all, err := sources()
	require.NoError(t, err)
	imp := exports(t, "./actor", "./backlog", "./internal/schedule", "./internal/timing", "./scoring", "./slotindex")
	var found []string
	for _, dir := range purePackages {
		var files []source
		for _, s := range all {
			if s.dir() == dir && !s.test() && builds(s) {
				files = append(files, s)
			}
		}
		require.NotEmpty(t, files, dir)
		info, err := typed(dir, files, imp)
		require.NoError(t, err)
		for _, s := range files {
			found = append(found, checkMapOrder(s, info)...)
		}
	}
	report(t, found)
}

// builds reports whether a file is part of the ordinary build. Files with the
// invariants of race builds are not.
func builds(s source) bool {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:build race") {
				return false
			}
		}
	}
	return true
}

func TestLoopsOverMapsAreRejected(t *testing.T) {
	check := func(s source) []string {
		info, err := typed("p", []source{s}, exports(t, "maps"))
		require.NoError(t, err)
		return checkMapOrder(s, info)
	}
	text := func(comment string) string {
		return "package p\ntype set map[int]bool\nfunc f(s set) {\nfor range s { " + comment + "\n}\nfor range []int{1} {\n}\n}\n"
	}
	judge(t, check,
		example{"actor/core.go", text(""), []string{"actor/core.go:4: a loop over a map"}},
		example{"actor/core.go", text("// order-free: a"), []string{"a loop over a map"}},
		example{"actor/core.go", text("// order-free: only a sum is taken"), nil},
		example{"scoring/a.go", "package p\nimport \"maps\"\nvar x = maps.Keys(map[int]int{})\n", []string{"maps.Keys"}},
		example{"actor/actor.go", text(""), nil},
		example{"actor/core_test.go", text(""), nil},
	)
}

// goList runs go list in the root of the module.
func goList(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list %v: %s", args, stderr.String())
	return string(out)
}
