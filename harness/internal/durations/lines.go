package durations

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/dispatcherd/dispatcherd/harness/internal/figure"
)

// product are the files that count: Go and SQL without tests, the trace tools, tools of tests, and what other changes of that time concern.
var product = []string{
	"*.go", "*.sql", ":!*_test.go", ":!harness", ":!bench", ":!internal/trace", ":!cmd/dispatcherd/internal/traces",
	":!internal/sim", ":!claim/claimfake", ":!internal/contract/contracttest", ":!internal/lint",
	":!internal/permits", ":!internal/daemon/admission", ":!claim/limits", ":!internal/json", ":!migrations/sql/00044*",
}

// Lines counts the lines of code that were added since a commit, less those that were removed. Blank lines and comments do not count.
func Lines(ctx context.Context, root, base string) (figure.Figures, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root, "diff", "-U0", base, "HEAD", "--"}, product...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git diff %s HEAD: %w", base, err)
	}
	return figure.Figures{figure.AtMost("lines", float64(added(out)), 900)}, nil
}

// added returns the lines of code that a diff adds, less those that it removes.
func added(diff []byte) (n int) {
	for line := range bytes.Lines(diff) {
		text := strings.TrimSpace(string(line[1:]))
		switch {
		case text == "" || strings.HasPrefix(text, "//") || strings.HasPrefix(text, "--") || strings.HasPrefix(text, "++"):
		case line[0] == '+':
			n++
		case line[0] == '-':
			n--
		}
	}
	return n
}
