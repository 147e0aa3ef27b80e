package rig

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

// Programs are the program files of one commit.
type Programs struct {
	Daemon string
	Noop   string // a worker whose jobs do nothing
}

// Rig is a running server and the programs built from this checkout.
type Rig struct {
	Postgres *Postgres
	Own      Programs
	Worker   string // program file of the worker that does what payloads say
	Hostile  string // program file of the hostile user
	Root     string // folder of the main module
	Lab      string // folder of this module
	Dir      string // folder of programs, logs and sockets
}

// Options are the options of Start.
type Options struct {
	Faults   bool              // the server is for experiments with faults: its recovery is short
	Settings map[string]string // settings of the server in addition to the usual ones
	Log      int               // gigabytes of log that are written at the start; 0 = one, or none with Faults
}

// Start builds the programs and starts the server.
func Start(ctx context.Context, o Options) (_ *Rig, err error) {
	r := &Rig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.Lab, err = Lab(ctx); err != nil {
		return nil, err
	}
	r.Root = filepath.Dir(filepath.Dir(r.Lab))
	if r.Dir, err = os.MkdirTemp("", "dlab-"); err != nil { // a short name, because it contains sockets
		return nil, fmt.Errorf("creating the folder of the laboratory: %w", err)
	}
	if err = os.Chmod(r.Dir, 0o711); err != nil { // the server's user must be able to enter it
		return nil, err
	}
	r.Own = Programs{Daemon: filepath.Join(r.Dir, "dispatcherd"), Noop: filepath.Join(r.Dir, "noop")}
	r.Worker, r.Hostile = filepath.Join(r.Dir, "worker"), filepath.Join(r.Dir, "hostile")
	if err = r.Rebuild(ctx, ""); err != nil {
		return nil, err
	}
	if err = Build(ctx, r.Lab, r.Dir, "", "./noop", "./hostile"); err != nil {
		return nil, err
	}
	if r.Postgres, err = startPostgres(ctx, r.Dir, o.settings()); err != nil || o.Faults {
		return r, err
	}
	return r, r.warmLog(ctx, max(1, o.Log))
}

// Rebuild builds the daemon and the worker from altered sources. An empty overlay builds the unchanged programs again.
func (r *Rig) Rebuild(ctx context.Context, overlay string) error {
	if err := Build(ctx, r.Root, r.Own.Daemon, overlay, "./cmd/dispatcherd"); err != nil {
		return err
	}
	return Build(ctx, r.Lab, r.Worker, overlay, "./worker")
}

// Close stops the server and removes everything.
func (r *Rig) Close() error {
	var errs []error
	if r.Postgres != nil && r.Postgres.server != nil {
		errs = append(errs, r.Postgres.stop())
	}
	if r.Dir != "" {
		errs = append(errs, os.RemoveAll(r.Dir))
	}
	return errors.Join(errs...)
}

// Lab returns the folder of this module. It works in any folder of the module.
func Lab(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	dir := filepath.Dir(strings.TrimSpace(string(out)))
	if filepath.Base(dir) != "lab" {
		return "", fmt.Errorf("run this inside the folder tools/lab of the checkout, not in %s", dir)
	}
	return dir, nil
}

// Build builds packages of the module in dir into the file or folder out. The overlay
// names altered sources; empty = none.
func Build(ctx context.Context, dir, out, overlay string, packages ...string) error {
	args := []string{"build", "-trimpath", "-o", out}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %v in %s: %w\n%s", packages, dir, err, said.String())
	}
	return nil
}
