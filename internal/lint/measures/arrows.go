package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

const actor = "actor"

// arrow says that a file uses an identifier that another file declares.
type arrow struct{ from, to string }

func arrows(t *tree) (int, error) {
	graph, err := t.actorArrows()
	if err != nil {
		return 0, err
	}
	out := map[string]int{}
	for a := range graph {
		out[a.from]++
	}
	t.table("actor_arrows", out)
	return len(graph), nil
}

// actorArrows returns the arrows between the files of package actor, with one
// identifier each.
func (t *tree) actorArrows() (map[arrow]string, error) {
	pkg, exports, err := t.list(actor)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(pkg.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	checked, err := conf.Check(pkg.ImportPath, fset, files, info)
	if err != nil {
		return nil, err
	}
	graph := map[arrow]string{}
	for id, object := range info.Uses {
		if object.Pkg() != checked {
			continue
		}
		a := arrow{filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(object.Pos()).Filename)}
		if old, known := graph[a]; a.from != a.to && (!known || id.Name < old) {
			graph[a] = id.Name
		}
	}
	return graph, nil
}

// listed is what the go command says about a package.
type listed struct {
	ImportPath string   `json:"ImportPath"`
	Dir        string   `json:"Dir"`
	Export     string   `json:"Export"`
	GoFiles    []string `json:"GoFiles"`
}

// list returns a package and the export data files of what it imports.
func (t *tree) list(dir string) (pkg listed, exports map[string]string, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./"+dir)
	cmd.Dir = t.root
	out, err := cmd.Output()
	if err != nil {
		return pkg, nil, fmt.Errorf("go list: %w", err)
	}
	exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return pkg, exports, nil
		} else if err != nil {
			return pkg, nil, err
		}
		exports[p.ImportPath] = p.Export
		pkg = p // the package itself comes last
	}
}

func upward(t *tree) (int, error) {
	graph, err := t.actorArrows()
	if err != nil {
		return 0, err
	}
	order := bestOrder(graph)
	n := 0
	for i, file := range order {
		t.detail("actor_upward order %d %s", i, file)
	}
	for a, name := range graph {
		if slices.Index(order, a.from) > slices.Index(order, a.to) {
			t.detail("actor_upward %s -> %s (%s)", a.from, a.to, name)
			n++
		}
	}
	return n, nil
}

// bestOrder returns an order of the files in which few arrows point backwards.
// It starts from several random orders. In each of them it moves one file at a
// time to the best position, until no move reduces the number of backward
// arrows. The seed is fixed, so the result is always the same.
func bestOrder(graph map[arrow]string) []string {
	names := map[string]bool{}
	for a := range graph {
		names[a.from], names[a.to] = true, true
	}
	files := slices.Sorted(maps.Keys(names))
	uses := make([][]int, len(files)) // uses[i][j] is 1 if file i uses file j
	for i := range files {
		uses[i] = make([]int, len(files))
		for j := range files {
			if _, ok := graph[arrow{files[i], files[j]}]; ok {
				uses[i][j] = 1
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	var best []int
	fewest := len(graph) + 1
	for range 200 {
		order := random.Perm(len(files))
		if n := improve(order, uses); n < fewest {
			best, fewest = slices.Clone(order), n
		}
	}
	sorted := make([]string, len(best))
	for i, f := range best {
		sorted[i] = files[f]
	}
	return sorted
}

// improve moves files until no single move reduces the number of arrows that
// point backwards. It returns that number.
func improve(order []int, uses [][]int) int {
	for moved := true; moved; {
		moved = false
		for from := range order {
			if to := bestMove(order, from, uses); to != from {
				f := order[from]
				copy(order, slices.Insert(slices.Delete(slices.Clone(order), from, from+1), to, f))
				moved = true
			}
		}
	}
	return backwards(order, uses)
}

// bestMove returns the position at which the file from position from causes
// the fewest backward arrows. If no move helps, that position is from itself.
func bestMove(order []int, from int, uses [][]int) int {
	best, most := from, 0
	f, saved := order[from], 0
	for to := from + 1; to < len(order); to++ { // f moves behind order[to]
		saved += uses[order[to]][f] - uses[f][order[to]]
		if saved > most {
			best, most = to, saved
		}
	}
	saved = 0
	for to := from - 1; to >= 0; to-- { // f moves before order[to]
		saved += uses[f][order[to]] - uses[order[to]][f]
		if saved > most {
			best, most = to, saved
		}
	}
	return best
}

// backwards counts the arrows from a file to an earlier one.
func backwards(order []int, uses [][]int) int {
	n := 0
	for i, f := range order {
		for _, earlier := range order[:i] {
			n += uses[f][earlier]
		}
	}
	return n
}
