package lint

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Payloads and results belong to the users, and may contain personal data: none
// of them may reach a log or an error, which is logged.
func TestNoPayloadIsLogged(t *testing.T) {
	example := func(call string) []string {
		return payloads(parse(t, "a.go", `package p; import ("errors"; "fmt"; "go.uber.org/zap"); func f() { `+call+` }`))
	}
	for _, call := range []string{
		`log.Info("x", zap.ByteString("p", job.Payload))`, `zap.String("p", string(payload[:10]))`, `sugar.Errorw("x", "r", f.Result)`,
		`fmt.Errorf("bad payload %s", payload)`, `errors.New(string(w.Payload))`,
	} {
		require.Len(t, example(call), 1, call)
	}
	for _, call := range []string{`zap.Int("n", len(payload))`, `zap.Int("n", result.Won)`, `zap.String("t", job.Type)`} {
		require.Empty(t, example(call), call)
	}
	var found []string
	for _, s := range sources(t) {
		if !s.test() && !strings.HasPrefix(s.path, "tools/") {
			found = append(found, payloads(s)...)
		}
	}
	report(t, found)
}

func payloads(s source) (found []string) {
	for n := range ast.Preorder(s.file) {
		call, ok := n.(*ast.CallExpr)
		if !ok || !s.speaks(call) {
			continue
		}
		for _, arg := range call.Args {
			if inner, ok := arg.(*ast.CallExpr); ok && s.speaks(inner) {
				continue // it is visited by itself
			}
			if name := secret(arg); name != "" {
				found = append(found, s.finding(arg, name+" goes into a log line or an error: name the job or the length"))
			}
		}
	}
	return found
}

// speaks reports whether the arguments of a call become part of a log line or an error.
func (s source) speaks(call *ast.CallExpr) bool {
	name := s.qualified(call.Fun)
	if strings.HasPrefix(name, "go.uber.org/zap.") || name == "fmt.Errorf" || name == "errors.New" {
		return true
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"go.uber.org/zap"` }) {
		return false
	}
	return slices.Contains([]string{"Debug", "Info", "Warn", "Error", "DPanic", "Panic", "Fatal", "Log"},
		strings.TrimRight(sel.Sel.Name, "lnwf"))
}

// secret returns the first name in an expression that denotes data of users. The length of such data is none.
func secret(e ast.Expr) (name string) {
	ast.Inspect(e, func(n ast.Node) bool {
		check := func(id *ast.Ident) {
			if name == "" && (strings.EqualFold(id.Name, "payload") || strings.EqualFold(id.Name, "result")) {
				name = id.Name
			}
		}
		switch n := n.(type) {
		case *ast.CallExpr:
			fn, ok := n.Fun.(*ast.Ident)
			return !ok || fn.Name != "len"
		case *ast.SelectorExpr: // result.Won denotes only the member Won
			check(n.Sel)
			_, plain := n.X.(*ast.Ident)
			return !plain
		case *ast.Ident:
			check(n)
		}
		return true
	})
	return name
}
