package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

// measure is one figure with its target.
type measure struct {
	name    string
	target  int
	compute func(*tree) (int, error)
}

// tree is the checkout to measure. The details of a measure are printed only
// if verbose is set (-v).
type tree struct {
	root    string
	files   []string // relative to root
	verbose bool
}

var measures = []measure{
	{"go_lines", 30_000, goLines},
	{"old_words", 0, oldWords},
	{"unsafe", 0, unsafeLines},
	{"flags", 40, flags},
	{"doc_words", 28_000, docWords},
	{"packages_over_25_files", 0, largePackages},
	{"actor_arrows", 90, arrows},
	{"actor_upward", 10, upward},
	{"statements", 9, statements},
	{"ci_seconds", 1200, ciSeconds},
}

func main() {
	root := flag.String("root", ".", "the checkout")
	check := flag.Bool("check", false, "fail if a target is missed")
	verbose := flag.Bool("v", false, "print the findings behind the figures")
	only := flag.String("only", "", "compute these measures only, separated by commas")
	flag.Parse()
	if err := run(*root, *only, *check, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "measures:", err)
		os.Exit(1)
	}
}

func run(root, only string, check, verbose bool) error {
	t, err := newTree(root, verbose)
	if err != nil {
		return err
	}
	line, missed := "measures:", []string{}
	for _, m := range measures {
		if only != "" && !strings.Contains(","+only+",", ","+m.name+",") {
			continue
		}
		n, err := m.compute(t)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		line = fmt.Sprintf("%s %s=%d", line, m.name, n)
		if n > m.target {
			missed = append(missed, fmt.Sprintf("%s %d > %d", m.name, n, m.target))
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, line)
	if check && len(missed) > 0 {
		return fmt.Errorf("targets missed: %s", strings.Join(missed, ", "))
	}
	return nil
}

// detail prints a finding.
func (t *tree) detail(format string, args ...any) {
	if t.verbose {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}
