// Command licenses lists the licenses of all dependencies of the repository and
// fails if one is not recognised or not compatible with Apache-2.0.
//
//	cd tools && go run ./licenses
//
// What is linked into the daemon needs a permissive license. The programs of
// the module tools/lab are never distributed, so it may also use files under
// the MPL. Tools are only run, so they may have any license that is recognised.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// part is a part of the repository with its dependencies.
type part struct {
	name     string
	dir      string   // from the repository's root
	packages string   // for go list; "" if dir has a package-lock.json
	allowed  []string // licenses; none: every one that is recognised
}

var (
	permissive = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "Unlicense"}
	weak       = append(slices.Clone(permissive), "MPL-2.0")
)

var parts = []part{
	{"daemon", ".", "./...", permissive},
	{"tools/lab", "tools/lab", "./...", weak},
	{"tools", "tools", "tool", nil},
	{"tools/lab/peers/node", "tools/lab/peers/node", "", nil},
	{"tools/openapi", "tools/openapi", "", nil},
}

// stated contains licenses of dependencies whose module or lock file does not state
// them.
var stated = map[string]string{
	"github.com/golangci/gofmt": "BSD-3-Clause", // a copy of Go's code; every file refers to Go's license
	"decko":                     "MIT",          // LICENSE of the package, 1.2.0
	"stickyfill":                "MIT",          // LICENSE of the package, 1.1.1
}

// dependency is a module or a package of npm.
type dependency struct {
	name     string
	licenses []string // empty = not recognised
}

func main() {
	root := ".."
	failed := false
	for _, p := range parts {
		all, err := p.dependencies(root)
		if err != nil {
			fmt.Fprintf(os.Stderr, "licenses: %s: %v\n", p.name, err)
			os.Exit(1)
		}
		for _, d := range all {
			if l, ok := stated[d.name]; ok && len(d.licenses) == 0 {
				d.licenses = []string{l}
			}
			verdict := p.judge(d)
			fmt.Printf("%-14s %-55s %s%s\n", p.name, d.name, strings.Join(d.licenses, " "), verdict)
			failed = failed || verdict != ""
		}
	}
	if failed {
		fmt.Fprintln(os.Stderr, "licenses: some dependencies cannot be used")
		os.Exit(1)
	}
}

// judge returns what is wrong with a dependency, or "".
func (p part) judge(d dependency) string {
	if len(d.licenses) == 0 {
		return "  NOT RECOGNISED"
	}
	for _, l := range d.licenses {
		if p.allowed != nil && !slices.Contains(p.allowed, l) {
			return "  NOT COMPATIBLE"
		}
	}
	return ""
}

func (p part) dependencies(root string) ([]dependency, error) {
	dir := filepath.Join(root, p.dir)
	if p.packages == "" {
		return npm(filepath.Join(dir, "package-lock.json"))
	}
	cmd := exec.Command("go", "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}} {{.Dir}}{{end}}", p.packages)
	if p.allowed == nil || p.name == "daemon" {
		cmd.Args = slices.DeleteFunc(cmd.Args, func(a string) bool { return a == "-test" })
	}
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	var all []dependency
	for _, line := range slices.Compact(lines) {
		name, folder, ok := strings.Cut(line, " ")
		if !ok || strings.HasPrefix(name, "github.com/dispatcherd/") {
			continue
		}
		licenses, err := inFolder(folder)
		if err != nil {
			return nil, err
		}
		all = append(all, dependency{name, licenses})
	}
	return all, nil
}

// npm reads the licenses of the packages in a lock file.
func npm(file string) ([]dependency, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			License string `json:"license"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, err
	}
	var all []dependency
	for path, p := range lock.Packages {
		if path == "" {
			continue // the entry of the repository itself
		}
		d := dependency{name: path[strings.LastIndex(path, "node_modules/")+len("node_modules/"):]}
		if p.License != "" {
			d.licenses = []string{p.License}
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b dependency) int { return strings.Compare(a.name, b.name) })
	return all, nil
}
