package durations

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os/exec"
	"strings"

	"github.com/dispatcherd/dispatcherd/harness/internal/figure"
)

// others are the files that do not count: tests and their tools, the trace tools, and what other changes of that time concern.
var others = []string{
	":!*_test.go",
	":!harness",
	":!bench",
	":!internal/trace",
	":!cmd/dispatcherd/internal/traces",
	":!internal/sim",
	":!claim/claimfake",
	":!internal/contract/contracttest",
	":!internal/lint",
	":!internal/limits/permits",
	":!internal/limits/admission",
	":!internal/limits/limitstore",
	":!internal/flow/flowstore",
	":!internal/flow/joins",
	":!claim/running.go",
	":!internal/flow/settlement",
	":!internal/exit",
	":!internal/json",
	":!migrations/sql/00044*",
}

// Lines counts the lines of Go code that were added since a commit, less those that were removed; for details, the lines of SQL.
// Blank lines and comments do not count.
func Lines(ctx context.Context, root, base string) (figures, details figure.Figures, err error) {
	count := func(files string) float64 {
		out, failed := exec.CommandContext(ctx, "git", append([]string{"-C", root, "diff", "-U0", base, "HEAD", "--", files}, others...)...).
			Output()
		if failed != nil {
			err = fmt.Errorf("git diff %s HEAD: %w", base, failed)
		}
		return float64(added(out))
	}
	figures = figure.Figures{figure.AtMost("lines", count("*.go"), 900)}
	return figures, figure.Figures{figure.AtMost("lines_sql", count("*.sql"), math.Inf(1))}, err
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
