package lint

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// purePackages make decisions and have no side effects.
var purePackages = []string{
	"actor",
	"actor/aside",
	"actor/config",
	"actor/effect",
	"actor/event",
	"actor/held",
	"actor/jobstate",
	"actor/orders",
	"actor/spawns",
	"actor/waits",
	"backlog",
	"internal/schedule/cron",
	"internal/idtable",
	"internal/limits/permits",
	"internal/schedule",
	"internal/segarray",
	"internal/timing",
	"scoring",
	"slotindex",
}

// isPure reports whether the file belongs to a pure package and is not a test.
func isPure(s source) bool { return !s.test() && slices.Contains(purePackages, s.dir()) }

// isShell reports whether the file is part of the loop around the Core. Only these
// files of the pure packages may use channels and goroutines.
func isShell(s source) bool {
	base := path.Base(s.path)
	return s.dir() == "actor" && (base == "actor.go" || strings.HasPrefix(base, "loop"))
}

// impureImports and the packages below them must not be imported by pure packages.
var impureImports = []string{
	"bufio", "crypto", "database/sql", "embed", "io", "log", "math/rand", "net", "os", "plugin", "runtime", "sync",
	"syscall", "testing", "unsafe", "github.com", "go.uber.org", "golang.org", "pgregory.net",
}

func checkPureImports(s source) []string {
	if !isPure(s) {
		return nil
	}
	var found []string
	for _, p := range slices.Sorted(maps.Keys(s.imports())) {
		if p == module || strings.HasPrefix(p, module+"/") || p == "math/rand/v2" {
			continue // see checkImports and checkPureCalls
		}
		for _, bad := range impureImports {
			if p == bad || strings.HasPrefix(p, bad+"/") {
				found = append(found, s.finding(s.imports()[p], "pure package imports %q: return an effect for the shell, or add a parameter", p))
			}
		}
		if p == "context" && !isShell(s) {
			found = append(found, s.finding(s.imports()[p], "the core never waits: only actor.go and loop*.go use contexts"))
		}
	}
	return found
}

func TestPurePackagesImportNothingImpure(t *testing.T) { obey(t, checkPureImports) }

func TestImpureImportsAreRejected(t *testing.T) {
	judge(
		t,
		checkPureImports,
		example{"actor/core.go", `package p; import "sync"`, []string{`imports "sync"`}},
		example{"actor/actor.go", `package p; import ("context"; "sync/atomic")`, []string{`imports "sync/atomic"`}},
		example{"actor/core.go", `package p; import "context"`, []string{"the core never waits"}},
		example{
			"scoring/a.go",
			`package p; import ("database/sql"; "github.com/jackc/pgx/v5"; "net/http"; "os")`,
			[]string{"sql", "pgx", "net/http", `"os"`},
		},
		example{"slotindex/a.go", `package p; import ("fmt"; "math/bits"; "time"; "` + module + `")`, nil},
		example{"slotindex/a_test.go", `package p; import "os"`, nil},
		example{"worker/a.go", `package p; import "sync"`, nil},
	)
}

// clocks are the functions of package time that only a shell may use.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTicker", "NewTimer", "Tick"}

// seeded are the functions of math/rand/v2 that do not use the global source.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Source", "Zipf"}

func checkPureCalls(s source) []string {
	if !isPure(s) {
		return nil
	}
	var found []string
	s.visit(func(n ast.Node) {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return
		}
		name := s.qualified(sel)
		if fn, ok := strings.CutPrefix(name, "time."); ok {
			if fn == "Sleep" || !isShell(s) && slices.Contains(clocks, fn) {
				found = append(found, s.finding(n, "time.%s in a pure package: take the instant from the event", fn))
			}
		}
		if fn, ok := strings.CutPrefix(name, "math/rand/v2."); ok && !slices.Contains(seeded, fn) {
			found = append(found, s.finding(n, "rand.%s draws from the global source: use a seeded *rand.Rand", fn))
		}
	})
	return found
}

func TestPurePackagesUseNoClockAndNoGlobalRandomSource(t *testing.T) { obey(t, checkPureCalls) }

func TestClockAndGlobalRandomSourceAreRejected(t *testing.T) {
	judge(
		t,
		checkPureCalls,
		example{"actor/core.go", `package p; import "time"; var x = time.Now()`, []string{"time.Now"}},
		example{"actor/core.go", `package p; import "time"; var now = time.Now`, []string{"time.Now"}},
		example{"actor/core.go", `package p; import "time"; var x = time.NewTimer(time.Second)`, []string{"time.NewTimer"}},
		example{"actor/loop.go", `package p; import "time"; var x = time.NewTimer(time.Second)`, nil},
		example{"actor/actor.go", `package p; import clock "time"; func f() { clock.Sleep(clock.Second) }`, []string{"time.Sleep"}},
		example{
			"actor/core.go",
			`package p; import "math/rand/v2"; var x, y = rand.IntN(3), rand.New(rand.NewPCG(1, 2)).IntN(3)`,
			[]string{"rand.IntN"},
		},
		example{"scoring/a.go", `package p; import "time"; const x = 3 * time.Second`, nil},
	)
}

func checkConcurrency(s source) []string {
	if !isPure(s) || isShell(s) {
		return nil
	}
	var found []string
	s.visit(func(n ast.Node) {
		what := ""
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "a go statement"
		case *ast.SelectStmt:
			what = "a select"
		case *ast.SendStmt:
			what = "a send"
		case *ast.ChanType:
			what = "a channel"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				what = "a receive"
			}
		}
		if what != "" {
			found = append(found, s.finding(n, "%s in the core: only actor.go and loop*.go may have goroutines and channels", what))
		}
	})
	return found
}

func TestTheCoreHasNoGoroutineAndNoChannel(t *testing.T) { obey(t, checkConcurrency) }

func TestConcurrencyInTheCoreIsRejected(t *testing.T) {
	text := `package p; func f(c chan int) { go f(c); c <- 1; <-c; select {} }`
	all := []string{"a channel", "a go statement", "a send", "a receive", "a select"}
	judge(t, checkConcurrency,
		example{"actor/core.go", text, all},
		example{"slotindex/loop.go", text, all},
		example{"actor/actor.go", text, nil},
		example{"actor/loop_stop.go", text, nil},
		example{"actor/core_test.go", text, nil},
		example{"worker/a.go", text, nil},
	)
}

// checkLoop limits the length of the loop: a case only calls a method.
func checkLoop(s source) []string {
	if !isShell(s) || s.test() {
		return nil
	}
	var found []string
	for _, d := range s.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		selects := false
		ast.Inspect(fn, func(n ast.Node) bool {
			if c, ok := n.(*ast.CommClause); ok {
				selects = true
				if len(c.Body) > 2 {
					found = append(found, s.finding(c, "a case with %d statements: at most 2, move them to a method", len(c.Body)))
				}
			}
			return true
		})
		if lines := length(s, fn); selects && lines > 40 {
			found = append(found, s.finding(fn, "a loop of %d lines: at most 40, split by phase", lines))
		}
	}
	return found
}

func TestLoopAndItsCasesAreShort(t *testing.T) { obey(t, checkLoop) }

func TestLongLoopsAndLongCasesAreRejected(t *testing.T) {
	body := func(n int) string {
		return "package p\nfunc f(c chan int) {\nselect {\ncase <-c:\n" + strings.Repeat(
			"f(c)\n",
			n,
		) + "default:\n}\n" + strings.Repeat(
			"\n",
			30,
		) + "}\n"
	}
	judge(t, checkLoop,
		example{"actor/actor.go", body(2), nil},
		example{"actor/actor.go", body(3), []string{"3 statements"}},
		example{"actor/loop.go", body(9), []string{"9 statements", "a loop of 45 lines"}},
	)
}
