package lint

import (
	"go/ast"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A test that sleeps is either slow or fails under load: it must wait for the
// event itself. In a bubble of testing/synctest, time is simulated, so a sleep
// is exact and takes no real time.
func TestNoTestSleepsOutsideABubble(t *testing.T) {
	example := func(body string) []string {
		return sleeps([]source{parse(t, "a_test.go", `package p; import ("testing/synctest"; "time")
			func bubble(f func()) { synctest.Test(nil, func() { f() }) }
			func nap() { `+body+` }`)})
	}
	require.Len(t, example(`time.Sleep(1)`), 1)
	require.Len(t, example(`synctest.Test(nil, func() { time.Sleep(1) }); time.Sleep(2)`), 1)
	require.Empty(t, example(`synctest.Test(nil, func() { time.Sleep(1) }); bubble(func() { time.Sleep(1) })`))
	report(t, sleeps(sources(t)))
}

func sleeps(all []source) (found []string) {
	helpers := map[string]bool{} // "dir.function" of those that run their argument in a bubble
	for _, s := range all {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && s.test() && fn.Recv == nil && len(s.bubbles(fn, nil)) > 0 && takesFunction(fn) {
				helpers[s.dir()+"."+fn.Name.Name] = true
			}
		}
	}
	for _, s := range all {
		if !s.test() {
			continue
		}
		bubbles := s.bubbles(s.file, helpers)
		for n := range ast.Preorder(s.file) {
			e, ok := n.(ast.Expr)
			if !ok || s.qualified(e) != "time.Sleep" {
				continue
			}
			if !slices.ContainsFunc(bubbles, func(b ast.Node) bool { return b.Pos() <= n.Pos() && n.End() <= b.End() }) {
				found = append(found, s.finding(n, "time.Sleep in a test: wait for the event itself, or run in a synctest.Test bubble"))
			}
		}
	}
	return found
}

// bubbles returns the functions below a node that run in a bubble.
func (s source) bubbles(below ast.Node, helpers map[string]bool) (functions []ast.Node) {
	for n := range ast.Preorder(below) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			continue
		}
		id, _ := call.Fun.(*ast.Ident)
		if s.qualified(call.Fun) != "testing/synctest.Test" && (id == nil || !helpers[s.dir()+"."+id.Name]) {
			continue
		}
		for _, arg := range call.Args {
			if f, ok := arg.(*ast.FuncLit); ok {
				functions = append(functions, f)
			}
		}
	}
	return functions
}

func takesFunction(fn *ast.FuncDecl) bool {
	return slices.ContainsFunc(fn.Type.Params.List, func(f *ast.Field) bool {
		_, ok := f.Type.(*ast.FuncType)
		return ok
	})
}
