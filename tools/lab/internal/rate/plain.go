package rate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var errBase = errors.New("give the commit to compare with: -base COMMIT")

// Before returns the parent of the first commit that has a file of the pattern.
func Before(ctx context.Context, root, pattern string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "--diff-filter=A", "--format=%H^", "--", pattern).Output()
	if commits := strings.Fields(string(out)); err == nil && len(commits) > 0 {
		return commits[len(commits)-1], nil
	}
	return "", fmt.Errorf("no commit adds %s: %w", pattern, errors.Join(errBase, err))
}

// Plain compares the rates of plain jobs and of COPY with those of another commit. An empty base is the last commit without a file of
// the pattern.
func Plain(ctx context.Context, root, base, pattern string, short bool) (ratio, copied float64, err error) {
	if base == "" {
		if base, err = Before(ctx, root, pattern); err != nil {
			return 0, 0, err
		}
	}
	args := []string{"run", "./regression", "-base", base}
	if short {
		args = append(args, "-short")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(root, "tools", "lab"), &said, os.Stderr
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("comparing with %s: %w", base, err)
	}
	return ratios(said.String())
}

// ratios reads the line of the comparison. A missing value is 0.
func ratios(text string) (jobs, copied float64, err error) {
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		into := map[string]*float64{"ratio": &jobs, "copy_ratio": &copied}[name]
		if into == nil {
			continue
		}
		if _, err := fmt.Sscan(value, into); err != nil {
			return 0, 0, fmt.Errorf("%q: %w", word, err)
		}
	}
	return jobs, copied, nil
}
