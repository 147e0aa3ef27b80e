package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// mayImport says which packages of this module a package may import; "" is
// the root. Tests and the command may import every package.
var mayImport = map[string][]string{
	"":                        {},
	"scoring":                 {""},
	"slotindex":               {"", "internal/segarray"},
	"internal/contract":       {""},
	"internal/timing":         {},
	"internal/schedule/cron":  {},
	"internal/limits/permits": {},
	"internal/idtable":        {""},
	"internal/segarray":       {},
	"internal/quota":          {},
	"internal/logtail":        {"", "internal/contract", "internal/quota"},
	"backlog":                 {"", "slotindex", "internal/contract", "internal/timing"},
	"actor": {
		"",
		"actor/aside",
		"actor/config",
		"actor/durations",
		"actor/effect",
		"actor/event",
		"actor/held",
		"actor/jobstate",
		"actor/orders",
		"actor/spawns",
		"actor/users",
		"actor/waits",
		"backlog",
		"scoring",
		"slotindex",
		"internal/contract",
		"internal/idtable",
		"internal/quota",
		"internal/segarray",
		"internal/timing",
	},
	"actor/aside":     {"", "internal/contract", "internal/timing"},
	"actor/config":    {"backlog", "scoring", "internal/timing"},
	"actor/effect":    {"", "scoring", "internal/contract", "internal/timing"},
	"actor/event":     {"", "internal/contract"},
	"actor/held":      {"", "internal/contract", "internal/timing"},
	"actor/durations": {"", "internal/contract", "internal/timing", "scoring"},
	"actor/orders":    {},
	"actor/spawns":    {"", "internal/contract"},
	"actor/waits":     {"internal/timing"},
	"actor/users":     {"actor/config", "internal/quota"},
	"actor/jobstate":  {},
	"workerproto":     {"", "internal/jsontext", "internal/quota"},
	"worker":          {"", "workerproto"},
	"migrations":      {"internal/dsn"},
	"claim": {
		"internal/limits/permits",
		"",
		"actor/aside",
		"migrations",
		"internal/contract",
		"internal/dsn",
		"internal/jsontext",
		"internal/timing",
	},
	"internal/schedule/schedulestore": {"claim", "internal/contract", "internal/schedule"},
	"claim/claimfake": {
		"",
		"claim",
		"internal/limits/limitstore",
		"internal/contract",
		"internal/jsontext",
		"internal/limits/permits",
	},
	"internal/httpapi": {
		"internal/flow/flowapi",
		"internal/limits/limitapi",
		"internal/limits/permits",
		"",
		"internal/contract",
		"internal/jsontext",
		"internal/ondemand",
		"internal/httpapi/problem",
		"internal/quota",
		"internal/schedule/scheduleapi",
		"workerproto",
	},
	"client": {
		"internal/flow/joins",
		"internal/limits/permits",
		"",
		"internal/contract",
		"internal/jsontext",
		"internal/httpapi/problem",
		"workerproto",
	},
	"internal/ondemand":        {"internal/limits/permits", "", "internal/httpapi/problem", "internal/quota"},
	"internal/httpapi/problem": {""},

	"internal/limits/limitstore": {"", "claim", "internal/contract", "internal/limits", "internal/limits/permits"},
	"internal/flow/flowstore":    {""},

	"claim/durations": {"", "internal/contract"},

	"internal/flow/joins": {"", "internal/contract", "internal/jsontext"},

	"internal/flow/flowapi": {"", "internal/contract", "internal/jsontext", "internal/httpapi/problem", "internal/httpapi/rowapi"},

	"internal/limits":          {"internal/contract", "internal/limits/permits"},
	"internal/limits/limitapi": {"internal/contract", "internal/limits", "internal/httpapi/problem", "internal/httpapi/rowapi"},
	"internal/httpapi/rowapi":  {"internal/contract", "internal/jsontext", "internal/httpapi/problem"},

	"internal/schedule/scheduleapi": {
		"internal/contract",
		"internal/jsontext",
		"internal/httpapi/problem",
		"internal/httpapi/rowapi",
		"internal/schedule",
	},

	"internal/devpg":    {},
	"internal/dsn":      {},
	"internal/jsontext": {},
	"internal/pgtest":   {"", "migrations", "internal/devpg"},
	"internal/lint":     {},
	"internal/sim": {
		"",
		"claim/claimfake",
		"internal/flow/flowstore",
		"internal/limits/limitstore",
		"actor",
		"actor/config",
		"actor/effect",
		"actor/event",
		"internal/contract",
		"internal/limits/admission",
		"internal/flow/settlement",
		"internal/limits/permits",
		"internal/shell",
		"internal/timing",
		"scoring",
		"workerproto",
	},
	"internal/trace": {"", "actor", "actor/config", "actor/effect",
		"actor/event", "internal/contract", "internal/quota", "internal/timing", "scoring", "slotindex"},
	"internal/allow":      {"", "workerproto"},
	"internal/connrate":   {"workerproto"},
	"internal/exit":       {"claim", "internal/devpg", "internal/dsn", "migrations", "workerproto"},
	"internal/jobmetrics": {"", "actor", "actor/effect", "internal/contract"},
	"internal/joblines":   {"internal/limits/permits", "", "claim", "internal/flow/joins", "internal/contract", "internal/jsontext"},
	"internal/schedule":   {"internal/limits/permits", "", "internal/contract", "internal/schedule/cron", "internal/jsontext"},
	"internal/daemon": {
		"actor/durations",
		"claim/durations",
		"internal/limits/admission",
		"internal/flow/settlement",
		"internal/flow/flowstore",
		"internal/limits/limitstore",
		"internal/limits/permits",
		"",
		"actor",
		"actor/aside",
		"actor/config",
		"actor/effect",
		"actor/event",
		"internal/httpapi",
		"claim",
		"internal/schedule/schedulestore",
		"internal/allow",
		"internal/connrate",
		"internal/contract",
		"internal/daemon/backend",
		"internal/schedule/controller",
		"internal/decisionlog",
		"internal/dsn",
		"internal/exit",
		"internal/hostlock",
		"internal/jobmetrics",
		"internal/logtail",
		"internal/ondemand",
		"internal/resources",
		"internal/shell",
		"internal/timing",
		"migrations",
		"workerproto",
	},
	"internal/limits/admission":    {"", "internal/limits/limitstore", "internal/contract", "internal/limits/permits", "internal/timing"},
	"internal/flow/settlement":     {"", "internal/flow/flowstore", "internal/contract"},
	"internal/schedule/controller": {"internal/schedule/schedulestore", "internal/contract", "internal/schedule", "internal/timing"},
	"internal/daemon/backend": {
		"internal/flow/joins",
		"internal/flow/flowapi",
		"internal/limits/limitapi",
		"internal/limits/limitstore",
		"internal/limits/permits",
		"",
		"actor",
		"actor/effect",
		"actor/event",
		"internal/httpapi",
		"claim",
		"internal/schedule/schedulestore",
		"internal/contract",
		"internal/decisionlog",
		"internal/exit",
		"internal/joblines",
		"internal/jsontext",
		"internal/logtail",
		"internal/ondemand",
		"internal/httpapi/problem",
		"internal/schedule/scheduleapi",
		"scoring",
	},
	"internal/resources":   {},
	"internal/hostlock":    {},
	"internal/shell":       {"", "actor", "actor/effect", "actor/event", "internal/contract", "workerproto"},
	"internal/decisionlog": {"", "actor", "internal/contract", "scoring"},

	"internal/schedule/schedulestest": {"internal/schedule/schedulestore", "internal/contract", "internal/schedule"},

	"internal/schedule/cron/crontest": {},
	"internal/lint/measures":          {"internal/lint/vocabulary"},
	"internal/lint/vocabulary":        {},
}

const command = "cmd"

// logging are the packages that may log and read the environment of the Go runtime:
// the command, and the daemon, which end-to-end tests run in process.
var logging = []string{"internal/flow/settlement", "internal/limits/admission", "internal/schedule/controller", command, "internal/daemon", "internal/resources", "e2e"}

// parts is the folder of the command's packages. They may import every package
// outside it, and inside it only those in mayImportPart. So shared packages do
// not depend on the packages that use them.
const parts = "cmd/dispatcherd/internal/"

var mayImportPart = map[string][]string{
	"ask":       {},
	"console":   {},
	"flows":     {"ask", "console", "settings"},
	"jobs":      {"ask", "console", "settings"},
	"limits":    {"ask", "console", "settings"},
	"schedules": {"ask", "console", "settings"},
	"settings":  {"ask", "console"},
	"traces":    {"ask", "console", "settings"},
}

func checkParts(s source) []string {
	part, below := strings.CutPrefix(s.dir(), parts)
	if !below {
		return nil
	}
	allowed, known := mayImportPart[part]
	if !known {
		return []string{
			s.finding(
				s.file,
				"package %q is not in the table of the command's packages: add it in internal/lint/imports_test.go with the packages that it may import",
				s.dir(),
			),
		}
	}
	var found []string
	for _, p := range slices.Sorted(maps.Keys(s.imports())) {
		other, ours := strings.CutPrefix(p, module+"/"+parts)
		if ours && !slices.Contains(allowed, other) {
			found = append(
				found,
				s.finding(s.imports()[p], "%q imports %q: of these packages it may import only %q; connect the packages in main", part, other, allowed),
			)
		}
	}
	return found
}

func TestCommandPackagesImportOnlyWhatTheTableAllows(t *testing.T) { obey(t, checkParts) }

func TestForbiddenImportsBetweenCommandPackagesAreRejected(t *testing.T) {
	text := func(part string) string { return fmt.Sprintf("package p; import %q", module+"/"+parts+part) }
	judge(t, checkParts,
		example{parts + "settings/a.go", text("console"), nil},
		example{parts + "console/a.go", text("settings"), []string{`"console" imports "settings"`}},
		example{parts + "console/a_test.go", text("settings"), []string{`"console" imports "settings"`}},
		example{parts + "ask/a.go", text("settings"), []string{`"ask" imports "settings"`}},
		example{parts + "settings/a_test.go", text("jobs"), []string{`"settings" imports "jobs"`}},
		example{parts + "traces/a.go", text("jobs"), []string{`"traces" imports "jobs"`}},
		example{parts + "novel/a.go", text("console"), []string{"not in the table"}},
		example{"cmd/dispatcherd/a.go", text("settings"), nil},
	)
}

func checkImports(s source) []string {
	if s.test() || s.in(command) {
		return nil
	}
	allowed, known := mayImport[s.dir()]
	if s.in("examples") {
		allowed, known = []string{"", "worker", "client"}, true
	}
	if !known {
		return []string{
			s.finding(
				s.file,
				"package %q is not in the table of imports: add it in internal/lint/imports_test.go with the packages that it may import",
				s.dir(),
			),
		}
	}
	var found []string
	for _, p := range slices.Sorted(maps.Keys(s.imports())) {
		inside, ours := strings.CutPrefix(p, module)
		inside = strings.TrimPrefix(inside, "/")
		if ours && !slices.Contains(allowed, inside) {
			found = append(
				found,
				s.finding(
					s.imports()[p],
					"%q imports %q: of this module it may import only %q; connect the packages in the command",
					s.dir(),
					inside,
					allowed,
				),
			)
		}
	}
	return found
}

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) { obey(t, checkImports) }

func TestForbiddenImportsAreRejected(t *testing.T) {
	text := func(imports ...string) string {
		return fmt.Sprintf("package p\nimport (%s)\n", `"`+strings.Join(imports, `"; "`)+`"`)
	}
	judge(t, checkImports,
		example{"actor/a.go", text(module+"/claim", module+"/scoring"), []string{`"actor" imports "claim"`}},
		example{"actor/a_test.go", text(module + "/claim"), nil},
		example{"scoring/a.go", text(module, module+"/slotindex"), []string{`imports "slotindex"`}},
		example{"a.go", text(module + "/scoring"), []string{`"" imports "scoring"`}},
		example{"worker/a.go", text(module+"/workerproto", module), nil},
		example{"worker/a.go", text(module + "/actor"), []string{`imports "actor"`}},
		example{"internal/devpg/a.go", text(module), []string{`imports ""`}},
		example{"internal/trace/a.go", text(module+"/actor", "os"), nil},
		example{"novel/a.go", text("fmt"), []string{"not in the table"}},
		example{"cmd/dispatcherd/a.go", text(module+"/claim", module+"/actor"), nil},
	)
}

// testSupport reports whether the package exists for the tests of other packages.
// Its imports are not linked into the daemon, see TestTheDaemonLinksNoTestLibrary.
func testSupport(s source) bool { return s.in("claim/contract", "internal/pgtest") }

// homes says where a library or a package may be imported. A pattern that ends
// in / matches all packages below.
var homes = []struct {
	pattern string
	allowed func(source) bool
	advice  string
}{
	{"go.uber.org/zap", func(s source) bool { return s.in(logging...) }, "add a small observer interface; only the daemon logs"},
	{"go.uber.org/zap/", func(s source) bool { return s.in(logging...) }, "add a small observer interface; only the daemon logs"},
	{"github.com/stretchr/testify/", func(s source) bool { return s.test() || testSupport(s) }, "use it in tests only"},
	{"pgregory.net/rapid", source.test, "use it in tests only"},
	{"go.uber.org/goleak", source.test, "use it in tests only"},
	{"testing", func(s source) bool { return s.test() || testSupport(s) }, "use it in tests only"},
	{"testing/", func(s source) bool { return s.test() || testSupport(s) }, "use it in tests only"},
	{
		"flag",
		func(s source) bool { return s.test() || s.in(command, "examples", "internal/lint/measures") },
		"add a parameter; flags belong to cmd",
	},
	{"github.com/spf13/", func(s source) bool { return s.in(command) }, "add a parameter; the command line belongs to cmd"},
}

func checkHomes(s source) []string {
	var found []string
	for _, p := range slices.Sorted(maps.Keys(s.imports())) {
		for _, home := range homes {
			below := strings.HasSuffix(home.pattern, "/") && strings.HasPrefix(p, home.pattern)
			if (p == home.pattern || below) && !home.allowed(s) {
				found = append(found, s.finding(s.imports()[p], "imports %q: %s", p, home.advice))
			}
		}
	}
	return found
}

func TestLibrariesAreImportedOnlyInTheirPackages(t *testing.T) { obey(t, checkHomes) }

func TestLibrariesInOtherPackagesAreRejected(t *testing.T) {
	judge(t, checkHomes,
		example{"claim/a.go", `package p; import "go.uber.org/zap"`, []string{"small observer"}},
		example{"claim/a_test.go", `package p; import "go.uber.org/zap/zapcore"`, []string{"small observer"}},
		example{"cmd/dispatcherd/a.go", `package p; import ("go.uber.org/zap"; "flag"; "github.com/spf13/cobra")`, nil},
		example{"cmd/dispatcherd/a.go", `package p; import "github.com/stretchr/testify/require"`, []string{"tests only"}},
		example{"worker/a.go", `package p; import ("flag"; "github.com/spf13/pflag")`, []string{"flags belong to cmd", "command line"}},
		example{"internal/pgtest/a.go", `package p; import "testing"`, nil},
		example{"worker/a.go", `package p; import "testing"`, []string{"tests only"}},
		example{"worker/a_test.go", `package p; import ("flag"; "github.com/stretchr/testify/require")`, nil},
	)
}
