package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
)

// standby is a streaming replica that can replace the server.
type standby struct {
	dir    string
	server *devpg.Server
}

// AddStandby creates a replica. If it is synchronous, a later transaction commits
// only when the replica has it.
func (p *Postgres) AddStandby(ctx context.Context, synchronous bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replicas++
	s := &standby{dir: fmt.Sprintf("%s-%d", p.dir, p.replicas)}
	if err := p.copyTo(ctx, s.dir); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	var err error
	if s.server, err = devpg.Start(ctx, devpg.Options{Dir: s.dir, Settings: p.settings, Log: p.log}); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	p.standby = s
	conn, err := pgx.Connect(ctx, p.server.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	wanted := "async"
	if synchronous {
		wanted = "sync"
		for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("making the standby synchronous: %w", err)
			}
		}
	}
	for ctx.Err() == nil {
		var follows bool
		err := conn.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1`, wanted).
			Scan(&follows)
		if err != nil || follows {
			return err
		}
		_ = Pause(ctx, 20*time.Millisecond) // the loop ends with ctx
	}
	return ctx.Err()
}

// copyTo makes a base backup that starts as a standby. Its directory looks like one
// that devpg has created.
func (p *Postgres) copyTo(ctx context.Context, dir string) error {
	info, err := os.Stat(filepath.Join(p.dir, "data"))
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
		return err
	}
	for _, name := range []string{dir, filepath.Join(dir, "lock")} {
		if err := os.Chown(name, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	tool, err := p.backupTool()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, tool,
		"-D", filepath.Join(dir, "data"), "-d", p.server.URL("postgres"), "-X", "stream", "-c", "fast", "-R", "--no-sync")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("copying the server: %w: %s", err, said.String())
	}
	return nil
}

// CanCopy reports whether this machine has the programs that a standby needs.
func (p *Postgres) CanCopy() bool {
	_, err := p.backupTool()
	return err == nil
}

// backupTool finds pg_basebackup next to the server's program. The folder that was
// searched may contain links to only some of the programs.
func (p *Postgres) backupTool() (string, error) {
	bin := p.server.Install().BinDir
	if program, err := filepath.EvalSymlinks(filepath.Join(bin, "postgres")); err == nil {
		bin = filepath.Dir(program)
	}
	return exec.LookPath(filepath.Join(bin, "pg_basebackup"))
}

var errNotPromoted = errors.New("the standby was not promoted within a minute")

// FailOver kills the server and replaces it by its standby, which is first
// read-only and then promoted. The old server is not started again.
func (p *Postgres) FailOver(ctx context.Context, readOnly time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := syscall.Kill(p.server.PID(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("ending Postgres: %w", err)
	}
	<-p.server.Done()
	old, oldDir := p.server, p.dir
	p.server, p.dir, p.standby = p.standby.server, p.standby.dir, nil
	if err := p.point(); err != nil {
		return err
	}
	_ = Pause(ctx, readOnly)
	ctx = context.WithoutCancel(ctx) // after an interruption the server is still needed to read the rows
	conn, err := pgx.Connect(ctx, p.server.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var promoted bool
	if err := conn.QueryRow(ctx, `SELECT pg_promote()`).Scan(&promoted); err != nil {
		return fmt.Errorf("promoting the standby: %w", err)
	}
	if !promoted {
		return errNotPromoted
	}
	return errors.Join(old.Stop(), os.RemoveAll(oldDir))
}

// CutReplication removes the primary's address from the standby. The standby falls
// behind and replays nothing until it is promoted.
func (p *Postgres) CutReplication(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn, err := pgx.Connect(ctx, p.standby.server.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("cutting the standby off: %w", err)
		}
	}
	return nil
}

// point makes the fixed address lead to the current server.
func (p *Postgres) point() error {
	next := p.address() + ".next"
	if err := os.Symlink(filepath.Join(p.dir, "run", socketName), next); err != nil {
		return err
	}
	return os.Rename(next, p.address())
}
