package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MinVersion is the oldest major version of Postgres that dispatcherd supports.
const MinVersion = 14

// ErrMissing is wrapped by the error of [Find] when the machine has no usable
// Postgres.
var ErrMissing = errors.New("no usable Postgres on this machine")

// Install is one installation of the Postgres server.
type Install struct {
	BinDir  string // holds postgres and initdb
	Version int    // major version
}

// Find returns the newest Postgres ≥ [MinVersion] among $PATH, pg_config,
// the Debian and PGDG folders and Homebrew. Without one, the error wraps
// [ErrMissing] and names the command that installs it.
func Find() (Install, error) {
	all := installs(searchDirs())
	if len(all) == 0 || all[0].Version < MinVersion {
		return Install{}, missing(all)
	}
	return all[0], nil
}

// searchDirs lists the folders worth a look, the preferred ones first.
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
		// Some packages link only postgres into $PATH; initdb lies beside the real file.
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

// versionOf asks a postgres binary for its major version.
func versionOf(postgres string) (int, error) {
	out, err := output(postgres, "--version")
	if err != nil {
		return 0, err
	}
	return parseVersion(out)
}

// parseVersion reads the major version out of a line such as
// "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)" or "… 19devel".
func parseVersion(line string) (int, error) {
	_, rest, ok := strings.Cut(line, "(PostgreSQL) ")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if !ok || digits == 0 {
		return 0, fmt.Errorf("%q is not the version line of a Postgres server", line)
	}
	return strconv.Atoi(rest[:digits])
}

// output runs a command that answers at once and returns its trimmed stdout.
func output(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return strings.TrimSpace(string(out)), err
}

// missing describes what was found instead and how to get what is needed.
func missing(found []Install) error {
	var have string
	if len(found) > 0 {
		have = fmt.Sprintf(" (%s has version %d)", found[0].BinDir, found[0].Version)
	}
	return fmt.Errorf("%w: version %d or newer is needed%s; install it with: %s", ErrMissing, MinVersion, have,
		installLine(runtime.GOOS, os.Geteuid() == 0, onPath))
}

func onPath(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// installLine is the one command that installs Postgres on a machine with the
// given tools.
func installLine(goos string, root bool, has func(string) bool) string {
	if goos == "darwin" || (has("brew") && !root) {
		return "brew install postgresql@17"
	}
	for _, m := range []struct{ tool, line string }{
		{"apt-get", "apt-get install -y postgresql"},
		{"dnf", "dnf install -y postgresql-server"},
		{"yum", "yum install -y postgresql-server"},
		{"zypper", "zypper install -y postgresql-server"},
		{"apk", "apk add postgresql"},
		{"pacman", "pacman -S --noconfirm postgresql"},
	} {
		if has(m.tool) && root {
			return m.line
		}
		if has(m.tool) {
			return "sudo " + m.line
		}
	}
	return "see https://www.postgresql.org/download/"
}
