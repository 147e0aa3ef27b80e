package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dispatcherd/dispatcherd/harness/internal/figure"
)

var errBase = errors.New("give the commit to compare with: -base COMMIT")

// before returns the last commit without limits.
func before(ctx context.Context, root string) (string, error) {
	out, err := git(ctx, root, "log", "--diff-filter=A", "--format=%H^", "--", "migrations/sql/00030_limits.sql")
	if commits := strings.Fields(out); err == nil && len(commits) > 0 {
		return commits[len(commits)-1], nil
	}
	return "", fmt.Errorf("no commit adds the migration of limits: %w", errors.Join(errBase, err))
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	return string(out), err
}

// Plain compares the rates of jobs without keys and of COPY with those of another commit; empty = the last one without limits.
func Plain(ctx context.Context, root, base string, short bool) (figure.Figures, error) {
	if base == "" {
		var err error
		if base, err = before(ctx, root); err != nil {
			return nil, err
		}
	}
	args := []string{"run", "./regression", "-base", base}
	if short {
		args = append(args, "-short")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(root, "bench"), &said, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("comparing with %s: %w", base, err)
	}
	return ratios(said.String())
}

// ratios reads the line of the comparison.
func ratios(text string) (figure.Figures, error) {
	var jobs, copied float64
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		into := map[string]*float64{"ratio": &jobs, "copy_ratio": &copied}[name]
		if into == nil {
			continue
		}
		if _, err := fmt.Sscan(value, into); err != nil {
			return nil, fmt.Errorf("%q: %w", word, err)
		}
	}
	return figure.Figures{figure.AtLeast("keyless", jobs, 0.97), figure.AtLeast("copy", copied, 0.95)}, nil
}
