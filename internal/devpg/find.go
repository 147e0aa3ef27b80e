package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MinVersion is the oldest major version of Postgres that dispatcherd supports.
const MinVersion = 14

// ErrMissing is wrapped by the error of [Start] if the machine has no usable Postgres.
var ErrMissing = errors.New("no usable Postgres on this machine")

// Install is one installation of the Postgres server.
type Install struct {
	BinDir  string // holds postgres and initdb
	Version int    // major version
}

// searchDirs lists the folders that may contain a server, the preferred ones first.
func searchDirs() []string {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	if p, err := exec.LookPath("pg_config"); err == nil {
		if out, err := output(p, "--bindir"); err == nil {
			dirs = append(dirs, out)
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",               // Debian, Ubuntu
		"/usr/pgsql-*/bin",                        // PGDG packages for Red Hat and SUSE
		"/usr/lib/postgresql*/bin",                // SUSE
		"/usr/libexec/postgresql*",                // Alpine
		"/opt/homebrew/opt/postgresql@*/bin",      // Homebrew on Apple silicon
		"/usr/local/opt/postgresql@*/bin",         // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/p*@*/bin", // Homebrew on Linux
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		matches, _ := filepath.Glob(pattern) // fails on a malformed pattern only
		dirs = append(dirs, matches...)
	}
	return dirs
}

// installs returns the installations in dirs, newest first, each once.
func installs(dirs []string) []Install {
	var found []Install
	seen := map[string]bool{}
	for _, dir := range dirs {
		target, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil || seen[target] {
			continue
		}
		seen[target] = true
		// Some packages link only postgres into $PATH; initdb is beside the real file.
		for _, d := range []string{dir, filepath.Dir(target)} {
			if _, err := os.Stat(filepath.Join(d, "initdb")); err != nil {
				continue
			}
			if v, err := versionOf(filepath.Join(d, "postgres")); err == nil {
				found = append(found, Install{BinDir: d, Version: v})
				break
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Install) int { return b.Version - a.Version })
	return found
}

// versionOf returns the major version of a postgres program.
func versionOf(postgres string) (int, error) {
	out, err := output(postgres, "--version")
	if err != nil {
		return 0, err
	}
	return parseVersion(out)
}

// parseVersion parses the major version in a line such as
// "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)" or "… 19devel".
func parseVersion(line string) (int, error) {
	_, rest, ok := strings.Cut(line, "(PostgreSQL) ")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if !ok || digits == 0 {
		return 0, fmt.Errorf("%q is not the version line of a Postgres server", line)
	}
	return strconv.Atoi(rest[:digits])
}

// output runs a command that ends at once and returns its trimmed standard output.
func output(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return strings.TrimSpace(string(out)), err
}

// missing returns an error that says what was found instead, and how to install a server.
func missing(found []Install) error {
	var have string
	if len(found) > 0 {
		have = fmt.Sprintf(" (%s has version %d)", found[0].BinDir, found[0].Version)
	}
	return fmt.Errorf("%w: version %d or newer is needed%s; install it, such as with 'apt-get install postgresql' (Debian, Ubuntu), "+
		"'dnf install postgresql-server' (Fedora, Red Hat) or 'brew install postgresql@17' (macOS)", ErrMissing, MinVersion, have)
}
