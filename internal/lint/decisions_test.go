package lint

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decisions are the packages that decide: the same events must have the same
// effects, or a recorded run could not be repeated, simulated or explained.
var decisions = []string{
	"./actor/...", "./backlog", "./scoring", "./slotindex", "./internal/timing", "./internal/limits/permits", "./internal/schedule",
	"./internal/schedule/cron",
}

// The order of a map, and of goroutines, differs from run to run.
func TestDecisionsAreRepeatable(t *testing.T) {
	packages, imports := load(t, decisions...)
	example := func(name, body string) []string {
		return unrepeatable(t, []source{parse(t, name, "package p\nfunc f(set map[int]bool, c chan int) {\n"+body+"\n}")}, imports)
	}
	require.Len(t, example("actor/core.go", "for range set {}"), 2) // the loop and the type of c
	require.Len(t, example("actor/core.go", "for range set {} // order-free: only a sum is taken"), 1)
	require.Len(t, example("actor/core.go", "go f(set, c); c <- 1; <-c; select {}"), 5)
	require.Empty(t, example("actor/actor.go", "select {}"))
	require.Greater(t, len(packages), 8)
	for _, p := range packages {
		var files []source
		for _, name := range p.GoFiles {
			_, dir, _ := strings.Cut(p.ImportPath, "dispatcherd/dispatcherd/")
			files = append(files, parse(t, dir+"/"+name, read(t, dir+"/"+name)))
		}
		report(t, unrepeatable(t, files, imports))
	}
}

// unrepeatable finds loops over maps without a reason, goroutines and channels in the files of a package. The
// loop around the core, actor.go and loop*.go, has both.
func unrepeatable(t *testing.T, files []source, imports types.Importer) (found []string) {
	t.Helper()
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	var trees []*ast.File
	for _, s := range files {
		trees = append(trees, s.file)
	}
	_, err := (&types.Config{Importer: imports}).Check(files[0].dir(), positions, trees, info)
	require.NoError(t, err)
	for _, s := range files {
		if base := filepath.Base(s.path); s.dir() == "actor" && (base == "actor.go" || strings.HasPrefix(base, "loop")) {
			continue
		}
		excused := s.reasons()
		for n := range ast.Preorder(s.file) {
			what := concurrent(n)
			if loop, ok := n.(*ast.RangeStmt); ok {
				if _, ok := info.TypeOf(loop.X).Underlying().(*types.Map); ok && !excused[positions.Position(n.Pos()).Line] {
					what = "a loop over a map: use a slice, or state in the same line why the order does not matter: " + orderFree + " a reason"
				}
			}
			if e, ok := n.(ast.Expr); ok && !excused[positions.Position(n.Pos()).Line] {
				if slices.Contains([]string{"maps.All", "maps.Keys", "maps.Values", "maps.Collect"}, s.qualified(e)) {
					what = s.qualified(e) + ": see a loop over a map"
				}
			}
			if what != "" {
				found = append(found, s.finding(n, what))
			}
		}
	}
	return found
}

const orderFree = "// order-free:"

// reasons returns the lines that say why the order of a map does not matter there.
func (s source) reasons() map[int]bool {
	lines := map[int]bool{}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if reason, ok := strings.CutPrefix(c.Text, orderFree); ok && len(strings.Fields(reason)) >= 2 {
				lines[positions.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

func concurrent(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a goroutine in a decision"
	case *ast.SelectStmt:
		return "a select in a decision"
	case *ast.SendStmt:
		return "a send in a decision"
	case *ast.ChanType:
		return "a channel in a decision"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "a receive in a decision"
		}
	}
	return ""
}

// listed is what the go command says about a package.
type listed struct {
	ImportPath string
	Export     string
	GoFiles    []string
	DepOnly    bool
}

// load returns the packages, and an importer of all packages that they need.
func load(t *testing.T, patterns ...string) (packages []listed, imports types.Importer) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{
		"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles,DepOnly",
	}, patterns...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		require.NoError(t, d.Decode(&p))
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			packages = append(packages, p)
		}
	}
	return packages, importer.ForCompiler(positions, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}
