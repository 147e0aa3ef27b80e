// Command measures prints what the code base measures, beside the figures of
// commit a387fc2 and the targets:
//
//	cd tools && go run ./measures [-check] [-root DIR]
//
// With -check it fails if a bound is exceeded that must hold.
//
// Product Go is what users run: no tests, fakes, simulator, traces, examples
// and tools. Its size is counted in tokens, because the number of lines
// depends on how they are wrapped. A semicolon that the scanner inserts at the
// end of a line is no token. A package is a folder of the main module with Go
// files that are no tests.
//
// Three figures are measured elsewhere: the time of make test and of .ci/run
// by these themselves, the commits of an idle daemon by make schedules, and
// what a stranger finds, by asking one. A function whose text is patched from
// the database has no present text in any file; a test of migrations compares
// the rest.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// measure is one row of the table.
type measure struct {
	name   string
	before int // at a387fc2
	now    int
	target string // "" = none
	must   int    // bound for -check; noBound = none
}

const noBound = -1

func main() {
	root := flag.String("root", "..", "the checkout")
	check := flag.Bool("check", false, "fail if a bound is exceeded that must hold")
	flag.Parse()
	t, err := readTree(*root)
	if err != nil {
		fail(err)
	}
	rows, err := t.measures()
	if err != nil {
		fail(err)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	line := func(cells ...any) { fmt.Fprintf(out, "%v\t%v\t%v\t%v\t%v\n", cells...) }
	line("measure", "a387fc2", "now", "target", "must")
	var missed []string
	for _, m := range rows {
		must := ""
		if m.must != noBound {
			must = fmt.Sprintf("≤ %d", m.must)
			if m.now > m.must {
				missed = append(missed, fmt.Sprintf("%s %d > %d", m.name, m.now, m.must))
			}
		}
		line(m.name, m.before, m.now, m.target, must)
	}
	if err := out.Flush(); err != nil {
		fail(err)
	}
	if *check && len(missed) > 0 {
		fail(fmt.Errorf("bounds exceeded: %s", strings.Join(missed, ", ")))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "measures:", err)
	os.Exit(1)
}

func (t *tree) measures() ([]measure, error) {
	flags, err := t.flags()
	if err != nil {
		return nil, err
	}
	modules, err := t.modules()
	if err != nil {
		return nil, err
	}
	size, err := t.daemonSize()
	if err != nil {
		return nil, err
	}
	product, tests, sql := t.goCode(isProduct), t.goCode(isTest), t.sqlCode()
	packages, single := t.packages()
	return []measure{
		{"product Go, tokens", 350577, product.tokens, "≤ 280000", 346_870},
		{"product Go, files", 454, len(product.lengths), "", noBound},
		{"product Go, function length, 90th percentile", 24, percentile(product.functions, 90), "≤ 30", noBound},
		{"product Go, function length, longest", 70, percentile(product.functions, 100), "≤ 70", noBound},
		{"product Go, file length, median", 104, percentile(product.lengths, 50), "≤ 150", noBound},
		{"product Go, file length, longest", 497, percentile(product.lengths, 100), "≤ 500", noBound},
		{"product Go, comment share, %", 14, product.commentShare(), "≥ 12", noBound},
		{"tests, tokens", 625907, tests.tokens, "≤ 480000", noBound},
		{"e2e, lines", 11554, t.lines(regexp.MustCompile(`^e2e/.*\.go$`)), "≤ 6000", noBound},
		{"SQL, lines", 4725, sql.lines, "≤ 1800", 1800},
		{"SQL, functions", 69, len(sql.functions), "≤ 32", 32},
		{"SQL, lines of PL/pgSQL bodies", 1320, sql.bodies, "≤ 400", 400},
		{"SQL, patches of the texts of functions", 24, sql.patches, "0", 0},
		{"lines over 140 characters, Go", 1625, t.longLines(".go"), "0", 0},
		{"lines over 140 characters, SQL", 313, t.longLines(".sql"), "0", 0},
		{"packages", 79, packages, "≤ 50", noBound},
		{"packages with one file", 30, single, "≤ 8", noBound},
		{"NOTIFY channels", 5, t.channels(), "1", 1},
		{"outbox tables", 4, sql.outboxes, "≤ 2", 2},
		{"columns that a heartbeat reads", 14, t.heartbeatColumns(), "≤ 8", noBound},
		{"fields of Daemon", 31, t.daemonFields(), "≤ 15", noBound},
		{"flags of serve", 40, flags, "≤ 50", noBound},
		{"scenario files", 124, t.count(regexp.MustCompile(`^actor/testdata/[^/]*\.txt$`)), "≥ 30", noBound},
		{"modules linked into the daemon", 23, modules, "≤ 48", 48},
		{"size of the daemon, MB", 22, size, "≤ 34", 34},
	}, nil
}

// tree is a checkout.
type tree struct {
	root  string
	files map[string]string // the text of each file of Go and SQL, and "" for others, by path with slashes
	names []string          // sorted
}

func readTree(root string) (*tree, error) {
	t := &tree{root: root, files: map[string]string{}}
	list := exec.Command("git", "-C", root, "ls-files", "-co", "--exclude-standard")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		text := []byte(nil)
		if ext := path.Ext(name); ext == ".go" || ext == ".sql" {
			if text, err = os.ReadFile(filepath.Join(root, name)); os.IsNotExist(err) {
				continue // deleted, and not yet committed
			} else if err != nil {
				return nil, err
			}
		}
		t.files[name] = string(text)
		t.names = append(t.names, name)
	}
	slices.Sort(t.names)
	return t, nil
}

func (t *tree) count(pattern *regexp.Regexp) (n int) {
	for _, name := range t.names {
		if pattern.MatchString(name) {
			n++
		}
	}
	return n
}

func (t *tree) lines(pattern *regexp.Regexp) (n int) {
	for _, name := range t.names {
		if pattern.MatchString(name) {
			n += strings.Count(t.files[name], "\n")
		}
	}
	return n
}

func (t *tree) longLines(ext string) (n int) {
	for _, name := range t.names {
		if path.Ext(name) != ext {
			continue
		}
		for line := range strings.SplitSeq(t.files[name], "\n") {
			if len([]rune(line)) > 140 {
				n++
			}
		}
	}
	return n
}

// flags counts the flags in the help of serve.
func (t *tree) flags() (int, error) {
	help, err := t.run("go", "run", "./cmd/dispatcherd", "serve", "--help")
	return len(regexp.MustCompile(`(?m)^ +(-\w, )?--[a-z]`).FindAllString(help, -1)), err
}

// modules counts the modules that are linked into the daemon, except its own.
func (t *tree) modules() (int, error) {
	list, err := t.run("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/dispatcherd")
	names := strings.Fields(list)
	slices.Sort(names)
	return len(slices.Compact(names)) - 1, err
}

// daemonSize builds the daemon as make build does, and returns its size in MB, rounded up.
func (t *tree) daemonSize() (int, error) {
	folder, err := os.MkdirTemp("", "measures")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, "dispatcherd")
	if _, err := t.run("env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./cmd/dispatcherd"); err != nil {
		return 0, err
	}
	program, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	return int((program.Size() + 999_999) / 1_000_000), nil
}

func (t *tree) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = t.root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), nil
}
