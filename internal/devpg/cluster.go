package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	superuser = "postgres"
	port      = "5432" // part of the socket's name only; nothing listens on TCP
)

// defaults are for a queue of some million rows on the machine of a developer. A queue leaves many dead rows, so the pauses of
// autovacuum are short. There is no jit, because compiling takes longer than any statement of a queue.
const defaults = `listen_addresses= unix_socket_permissions=0700 max_connections=200 shared_buffers=256MB min_wal_size=256MB
	max_wal_size=2GB checkpoint_timeout=15min autovacuum_naptime=10s autovacuum_vacuum_cost_delay=0 random_page_cost=1.1 jit=off
	timezone=UTC log_timezone=UTC log_checkpoints=off log_autovacuum_min_duration=-1 restart_after_crash=on`

// unsafe are settings that give up durability for speed.
const unsafe = "fsync=off synchronous_commit=off full_page_writes=off"

// settings returns name=value pairs, of which the last one for a name applies.
func settings(o Options) []string {
	pairs := strings.Fields(defaults)
	if o.Ephemeral {
		pairs = append(pairs, strings.Fields(unsafe)...)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		pairs = append(pairs, name+"="+o.Settings[name])
	}
	return pairs
}

// chooseInstall returns the installation of the version that wrote the data, because another
// version cannot read the data. Without data it returns the newest installation.
func (s *Server) chooseInstall() (Install, error) {
	have, err := s.dataVersion()
	if err != nil {
		return Install{}, err
	}
	found := installs(searchDirs())
	if len(found) == 0 || found[0].Version < MinVersion {
		return Install{}, missing(found)
	}
	for _, c := range found {
		if have == 0 || c.Version == have {
			return c, nil
		}
	}
	return Install{}, fmt.Errorf("the data in %s were written by Postgres %d, but this machine has Postgres %d (%s): "+
		"install version %d, or move the directory away to begin anew", s.data(), have, found[0].Version, found[0].BinDir, have)
}

// dataVersion returns the major version that wrote the data, 0 if there are none.
func (s *Server) dataVersion() (int, error) {
	text, err := readSmall(s.root, "data/PG_VERSION")
	if errors.Is(err, fs.ErrNotExist) {
		if entries, _ := fs.ReadDir(s.root.FS(), "data"); len(entries) > 0 {
			return 0, unusable("%s is not empty and holds no Postgres data: choose another directory", s.data())
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the version of the data: %w", err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("%s holds data of an unknown version: %w", s.data(), err)
	}
	return v, nil
}

// initdb creates the cluster if it does not exist. It uses a temporary directory and renames it,
// so that an interrupted run leaves no data. An interrupted initdb of an earlier process may
// still write to its own directory, so errors of the removal are ignored.
func (s *Server) initdb(ctx context.Context, hurry bool) error {
	if v, err := s.dataVersion(); err != nil || v != 0 {
		return err
	}
	unfinished, _ := filepath.Glob(s.data() + ".new*") // fails only for a malformed pattern
	for _, dir := range unfinished {
		_ = os.RemoveAll(dir)
	}
	fresh := s.data() + ".new-" + strconv.Itoa(os.Getpid())
	args := []string{"-D", fresh, "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C"}
	if hurry {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.install.BinDir, "initdb"), args...)
	s.prepare(cmd)
	err := cmd.Run()
	if s.owner.drop && errors.Is(err, fs.ErrPermission) {
		return unusable("%s cannot open %s, because a directory above it is closed: choose another directory", s.owner.name, s.dir)
	}
	if err != nil {
		return fmt.Errorf("creating a Postgres cluster in %s: %w%s", fresh, err, s.tail.quote())
	}
	if err := os.Rename(fresh, s.data()); err != nil {
		return fmt.Errorf("moving the new cluster into place: %w", err)
	}
	return nil
}

// prepare sets directory, environment, output and user of a program of Postgres.
func (s *Server) prepare(cmd *exec.Cmd) {
	cmd.Dir = s.dir
	cmd.Env = environment(os.Environ())
	cmd.Stdout, cmd.Stderr = s.tail, s.tail
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner.credential()}
}

// environment removes the variables that change the behaviour of the server (PGDATA, PGPORT,
// PGOPTIONS, …). It sets English messages, because launch searches for one.
func environment(env []string) []string {
	kept := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG")
	})
	return append(kept, "LC_ALL=C")
}
