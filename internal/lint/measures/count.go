package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/lint/vocabulary"
)

func newTree(root string, verbose bool) (*tree, error) {
	files, err := vocabulary.Files(root)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f string) bool {
		_, err := os.Stat(filepath.Join(root, f))
		return err != nil // deleted, and not yet committed
	})
	return &tree{root: root, files: files, verbose: verbose}, nil
}

func (t *tree) read(file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(t.root, file))
	return string(text), err
}

// otherModules are folders with a go.mod of their own.
var otherModules = []string{"tools"}

// support are folders that only tests use, or programs that test or measure
// the product.
var support = []string{
	"claim/claimfake", "internal/schedule/cron/crontest", "internal/pgtest",
	"internal/lint", "internal/sim", "internal/trace", "cmd/dispatcherd/internal/traces",
}

func within(file string, folders []string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
}

// sources returns the Go files that are no tests.
func (t *tree) sources() []string {
	return slices.DeleteFunc(slices.Clone(t.files), func(f string) bool {
		return path.Ext(f) != ".go" || strings.HasSuffix(f, "_test.go") || strings.Contains("/"+f, "/testdata/")
	})
}

func goLines(t *tree) (int, error) {
	sum, by := 0, map[string]int{}
	for _, f := range t.sources() {
		if within(f, otherModules) || within(f, support) {
			continue
		}
		text, err := t.read(f)
		if err != nil {
			return 0, err
		}
		n := strings.Count(text, "\n")
		sum += n
		by[path.Dir(f)] += n
	}
	t.table("go_lines", by)
	return sum, nil
}

// table prints counts, the largest first.
func (t *tree) table(name string, counts map[string]int) {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	for _, k := range keys {
		t.detail("%s %7d %s", name, counts[k], k)
	}
}

func oldWords(t *tree) (int, error) {
	found, err := vocabulary.Tree(t.root)
	if err != nil {
		return 0, err
	}
	files, words := map[string]int{}, map[string]int{}
	for _, f := range found {
		files[f.Path]++
		words[f.Word]++
		t.detail("%s", f)
	}
	t.table("old_words", files)
	t.table("old_words", words)
	return len(found), nil
}

var usesUnsafe = regexp.MustCompile(`\bunsafe\.[A-Z]`)

func unsafeLines(t *tree) (int, error) {
	n := 0
	for _, f := range t.sources() {
		if within(f, otherModules) {
			continue
		}
		text, err := t.read(f)
		if err != nil {
			return 0, err
		}
		for i, line := range strings.Split(text, "\n") {
			code, _, _ := strings.Cut(line, "//")
			if usesUnsafe.MatchString(code) {
				t.detail("unsafe %s:%d", f, i+1)
				n++
			}
		}
	}
	return n, nil
}

var flagLine = regexp.MustCompile(`(?m)^ +(-\w, )?--[a-z]`)

func flags(t *tree) (int, error) {
	cmd := exec.Command("go", "run", "./cmd/dispatcherd", "serve", "--help")
	cmd.Dir = t.root
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("serve --help: %w", err)
	}
	return len(flagLine.FindAllString(string(out), -1)), nil
}

func docWords(t *tree) (int, error) {
	sum, by := 0, map[string]int{}
	for _, f := range t.files {
		if path.Ext(f) != ".md" {
			continue
		}
		text, err := t.read(f)
		if err != nil {
			return 0, err
		}
		by[f] = len(strings.Fields(text))
		sum += by[f]
	}
	t.table("doc_words", by)
	return sum, nil
}

const maxFiles = 25

func largePackages(t *tree) (int, error) {
	by := map[string]int{}
	for _, f := range t.sources() {
		by[path.Dir(f)]++
	}
	maps.DeleteFunc(by, func(dir string, n int) bool { return n <= maxFiles || dir == "workerproto" })
	t.table("packages_over_25_files", by)
	return len(by), nil
}

// ciSeconds reads what .ci/run wrote.
func ciSeconds(t *tree) (int, error) {
	text, err := t.read("bin/ci-seconds")
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(text))
}
