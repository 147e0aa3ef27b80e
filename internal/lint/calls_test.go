package lint

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checkSleep finds calls of time.Sleep in tests. In a synctest bubble time is
// simulated, so a sleep takes no real time and is exact.
func checkSleep(s source) []string {
	if !s.test() {
		return nil
	}
	helpers := bubbleHelpers(s)
	if all, err := sources(); err == nil {
		for _, other := range all {
			if other.dir() == s.dir() && other.test() {
				maps.Copy(helpers, bubbleHelpers(other))
			}
		}
	}
	var bubbles []ast.Node
	s.visit(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		id, _ := call.Fun.(*ast.Ident)
		if s.callee(call) != "testing/synctest.Test" && (id == nil || !helpers[id.Name]) {
			return
		}
		for _, arg := range call.Args {
			if _, ok := arg.(*ast.FuncLit); ok {
				bubbles = append(bubbles, arg)
			}
		}
	})
	var found []string
	s.visit(func(n ast.Node) {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || s.qualified(sel) != "time.Sleep" {
			return
		}
		if !slices.ContainsFunc(bubbles, func(b ast.Node) bool { return b.Pos() <= n.Pos() && n.End() <= b.End() }) {
			found = append(found, s.finding(n, "time.Sleep in a test: wait for the event itself, or run in a synctest.Test bubble"))
		}
	})
	return found
}

// bubbleHelpers returns the functions of a file that run their argument in a
// bubble.
func bubbleHelpers(s source) map[string]bool {
	helpers := map[string]bool{}
	for _, d := range s.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || fn.Body == nil {
			continue
		}
		given := map[string]bool{}
		for _, field := range fn.Type.Params.List {
			if _, ok := field.Type.(*ast.FuncType); ok {
				for _, name := range field.Names {
					given[name.Name] = true
				}
			}
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || s.callee(call) != "testing/synctest.Test" {
				return true
			}
			ast.Inspect(call, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && given[id.Name] {
					helpers[fn.Name.Name] = true
				}
				return true
			})
			return false
		})
	}
	return helpers
}

func TestNoTestSleeps(t *testing.T) { obey(t, checkSleep) }

func TestSleepsOutsideBubblesAreRejected(t *testing.T) {
	judge(
		t,
		checkSleep,
		example{"a_test.go", `package p; import "time"; func f() { time.Sleep(1) }`, []string{"wait for the event"}},
		example{"a_test.go", `package p; import "time"; var nap = time.Sleep`, []string{"wait for the event"}},
		example{
			"a_test.go",
			`package p; import ("testing/synctest"; "time"); func f() { synctest.Test(nil, func() { time.Sleep(1) }); time.Sleep(2) }`,
			[]string{"wait"},
		},
		example{"a_test.go", `package p; import ("testing/synctest"; "time"); func f() { synctest.Test(nil, func() { time.Sleep(1) }) }`, nil},
		example{
			"a_test.go",
			`package p; import ("testing/synctest"; "time"); func bubble(f func()) { synctest.Test(nil, func() { f() }) }; func g() { bubble(func() { time.Sleep(1) }) }`,
			nil,
		},
		example{
			"a_test.go",
			`package p; import ("testing/synctest"; "time"); func bubble(f func()) { f(); synctest.Test(nil, nil) }; func g() { bubble(func() { time.Sleep(1) }) }`,
			[]string{"wait"},
		},
	)
}

// environment lists the functions that read settings. os.Environ is not among them,
// because a child process inherits the complete environment.
var environment = []string{"os.Getenv", "os.LookupEnv", "os.ExpandEnv"}

// checkEnvironment permits only the command to read the environment. The private
// Postgres may read PATH and the variables of XDG.
func checkEnvironment(s source) []string {
	if s.test() || testSupport(s) || s.in(logging...) || s.in("examples") {
		return nil
	}
	var found []string
	excused := map[ast.Node]bool{}
	s.visit(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s.in("internal/devpg") && len(n.Args) == 1 && isPlace(n.Args[0]) {
				excused[n.Fun] = true
			}
		case *ast.SelectorExpr:
			if name := s.qualified(n); slices.Contains(environment, name) && !excused[n] {
				found = append(found, s.finding(n, "%s outside cmd: add a parameter; only cmd reads flags and environment", name))
			}
		}
	})
	return found
}

// isPlace reports whether an argument is "PATH" or "XDG_…".
func isPlace(arg ast.Expr) bool {
	lit, ok := arg.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return false
	}
	name, err := strconv.Unquote(lit.Value)
	return err == nil && (name == "PATH" || strings.HasPrefix(name, "XDG_"))
}

func TestOnlyTheCommandReadsTheEnvironment(t *testing.T) { obey(t, checkEnvironment) }

func TestEnvironmentReadsOutsideTheCommandAreRejected(t *testing.T) {
	text := func(arg string) string { return `package p; import "os"; var x = os.Getenv(` + arg + `)` }
	judge(t, checkEnvironment,
		example{"claim/a.go", text(`"DATABASE_URL"`), []string{"os.Getenv outside cmd"}},
		example{"claim/a.go", text(`"PATH"`), []string{"os.Getenv outside cmd"}},
		example{"claim/a.go", `package p; import "os"; var x = os.LookupEnv`, []string{"os.LookupEnv"}},
		example{"worker/a.go", `package p; import "os"; var x = os.Environ()`, nil},
		example{"claim/a_test.go", text(`"PATH"`), nil},
		example{"internal/pgtest/a.go", text(`"X"`), nil},
		example{"cmd/dispatcherd/a.go", text(`"DATABASE_URL"`), nil},
		example{"internal/devpg/a.go", text(`"PATH"`), nil},
		example{"internal/devpg/a.go", text(`"XDG_DATA_HOME"`), nil},
		example{"internal/devpg/a.go", text(`"HOME"`), []string{"os.Getenv"}},
	)
}

// parsers are the functions of the driver that parse a connection string. Their errors quote it.
var parsers = []string{"pgconn.ParseConfig", "pgconn.Connect", "pgx.ParseConfig", "pgx.Connect", "pgxpool.ParseConfig", "pgxpool.New"}

func checkConnectionStrings(s source) []string {
	if s.test() || testSupport(s) || s.in("internal/dsn", "internal/devpg") {
		return nil
	}
	var found []string
	s.visit(func(n ast.Node) {
		if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(parsers, path.Base(s.qualified(sel))) {
			found = append(
				found,
				s.finding(n, "%s outside internal/dsn: its errors quote the connection string; use dsn.Parse", path.Base(s.qualified(sel))),
			)
		}
	})
	return found
}

func TestOnlyOnePackageParsesConnectionStrings(t *testing.T) { obey(t, checkConnectionStrings) }

func TestOtherParsersOfConnectionStringsAreRejected(t *testing.T) {
	text := `package p; import "github.com/jackc/pgx/v5/pgxpool"; var x = pgxpool.New`
	judge(t, checkConnectionStrings,
		example{"claim/a.go", text, []string{"pgxpool.New outside internal/dsn"}},
		example{"claim/a_test.go", text, nil},
		example{"internal/dsn/a.go", text, nil},
	)
}

// loggers are the methods of zap's loggers that write a message.
var loggers = []string{"Debug", "Info", "Warn", "Error", "DPanic", "Panic", "Fatal", "Log"}

// speaks reports whether the arguments of a call become part of a log message or an
// error.
func speaks(s source, call *ast.CallExpr) bool {
	name := s.callee(call)
	if strings.HasPrefix(name, "go.uber.org/zap.") || name == "fmt.Errorf" || name == "errors.New" {
		return true
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !s.in(logging...) {
		return false
	}
	method := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(sel.Sel.Name, "ln"), "w"), "f")
	return slices.Contains(loggers, method)
}

// secrets returns the first name in an expression that denotes data of users. The
// length of such data may be logged.
func secrets(e ast.Expr) string {
	name := ""
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if fn, ok := call.Fun.(*ast.Ident); ok && fn.Name == "len" {
				return false
			}
		}
		switch n := n.(type) {
		case *ast.SelectorExpr: // result.Won denotes only the member Won
			name = secretName(name, n.Sel)
			_, plain := n.X.(*ast.Ident)
			return !plain
		case *ast.Ident:
			name = secretName(name, n)
		}
		return true
	})
	return name
}

func secretName(found string, id *ast.Ident) string {
	switch {
	case found != "":
		return found
	case strings.EqualFold(id.Name, "payload"), strings.EqualFold(id.Name, "result"):
		return id.Name
	}
	return ""
}

func checkPayload(s source) []string {
	if s.test() {
		return nil
	}
	var found []string
	s.visit(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || !speaks(s, call) {
			return
		}
		for _, arg := range call.Args {
			if inner, ok := arg.(*ast.CallExpr); ok && speaks(s, inner) {
				continue // the inner call is reported separately
			}
			if name := secrets(arg); name != "" {
				found = append(
					found,
					s.finding(arg, "%s goes into a log line or an error: payloads and results belong to the users; name the job or the length", name),
				)
			}
		}
	})
	return found
}

func TestNoPayloadIsLogged(t *testing.T) { obey(t, checkPayload) }

func TestLoggedPayloadsAreRejected(t *testing.T) {
	text := func(call string) string {
		return "package p\nimport (\"errors\"; \"fmt\"; \"go.uber.org/zap\")\nfunc f() { " + call + " }\n"
	}
	judge(t, checkPayload,
		example{"cmd/dispatcherd/a.go", text(`log.Info("x", zap.ByteString("p", job.Payload))`), []string{"Payload goes into"}},
		example{"cmd/dispatcherd/a.go", text(`log.Info("x", zap.String("p", string(payload[:10])))`), []string{"payload goes into"}},
		example{"cmd/dispatcherd/a.go", text(`zap.Any("r", result)`), []string{"result goes into"}},
		example{"cmd/dispatcherd/a.go", text(`sugar.Errorw("x", "r", f.Result)`), []string{"Result goes into"}},
		example{"cmd/dispatcherd/a.go", text(`zap.Int("bytes", len(payload))`), nil},
		example{"cmd/dispatcherd/a.go", text(`zap.Int("won", result.Won)`), nil},
		example{"cmd/dispatcherd/a.go", text(`zap.String("type", job.Type)`), nil},
		example{"claim/a.go", text(`fmt.Errorf("bad payload %s", payload)`), []string{"payload goes into"}},
		example{"claim/a.go", text(`errors.New(string(w.Payload))`), []string{"Payload goes into"}},
		example{"claim/a_test.go", text(`zap.Any("r", result)`), nil},
	)
}
