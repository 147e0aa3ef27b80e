package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const maxModules = 25

// linked returns the modules that are linked into the daemon, except its own, and
// the linked packages.
func linked(t *testing.T) (modules, packages []string) {
	t.Helper()
	return dependencies(goList(t, "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", "./cmd/dispatcherd"))
}

// dependencies parses lines with a package and its module. Packages of the standard
// library have no module.
func dependencies(list string) (modules, packages []string) {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		packages = append(packages, fields[0])
		if len(fields) == 2 && fields[1] != module {
			modules = append(modules, fields[1])
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules), packages
}

func TestTheDaemonLinksAtMost25Modules(t *testing.T) {
	modules, _ := linked(t)
	require.NotEmpty(t, modules)
	require.LessOrEqual(t, len(modules), maxModules, "modules in the daemon: %s", strings.Join(modules, ", "))
}

// maxBinary bounds the size of the daemon's binary in bytes, built as by `make
// build`. The time zone database for hosts without one takes 0.4 MB of it, the commands, API and statements of batches and
// flows 0.4 MB.
const maxBinary = 22_000_000

func TestDaemonBinaryHasAtMost22MB(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dispatcherd")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/dispatcherd")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	program, err := os.Stat(path)
	require.NoError(t, err)
	require.LessOrEqual(
		t,
		program.Size(),
		int64(maxBinary),
		"text/template (cobra's SetHelpTemplate) keeps every exported method alive; `go tool nm -size -sort size` says what is large",
	)
	require.Greater(t, program.Size(), int64(maxBinary/4), "the build must produce the complete program")
}

// testLibraries must not be linked into the daemon.
var testLibraries = []string{
	"testing",
	"net/http/httptest",
	"github.com/stretchr/testify",
	module + "/internal/pgtest",
	module + "/claim/contract",
	"pgregory.net/rapid",
	"go.uber.org/goleak",
}

func checkLinked(packages []string) []string {
	var found []string
	for _, p := range packages {
		for _, lib := range testLibraries {
			if p == lib || strings.HasPrefix(p, lib+"/") {
				found = append(
					found,
					"the daemon links "+p+": move what imports it into a test; `go list -deps -json ./cmd/dispatcherd` shows which package imports it",
				)
			}
		}
	}
	return found
}

func TestTheDaemonLinksNoTestLibrary(t *testing.T) {
	_, packages := linked(t)
	report(t, checkLinked(packages))
}

func TestLinkedTestLibrariesAreRejected(t *testing.T) {
	modules, packages := dependencies("fmt \n" + module + "/cmd/dispatcherd " + module + "\n" +
		"github.com/stretchr/testify/require github.com/stretchr/testify\ngithub.com/stretchr/testify/assert github.com/stretchr/testify\n")
	require.Equal(t, []string{"github.com/stretchr/testify"}, modules)
	require.Len(t, packages, 4)
	require.Len(t, checkLinked(packages), 2)
	require.Empty(t, checkLinked([]string{"fmt", "testingstuff"}))
}

// checkReplace finds replace directives. With one of them `go install` of the
// daemon fails.
func checkReplace(gomod string) []string {
	var found []string
	for line := range strings.Lines(gomod) {
		if fields := strings.Fields(line); len(fields) > 0 && (fields[0] == "replace" || slices.Contains(fields, "=>") && fields[0] != "//") {
			found = append(found, "go.mod: "+strings.TrimSpace(line)+": depend on a released version")
		}
	}
	return found
}

func TestGoModReplacesNothing(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	report(t, checkReplace(string(text)))
}

func TestReplaceDirectivesAreRejected(t *testing.T) {
	require.Len(t, checkReplace("module m\nreplace a => ../a\n"), 1)
	require.Len(t, checkReplace("module m\nreplace (\n\ta => ../a\n)\n"), 2)
	require.Empty(t, checkReplace("module m\n\nrequire a v1.0.0 // replaceable\n"))
}
