package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
)

// Settings are the server parameters of every measurement, the same for all
// contestants. Durability is on: a finished job survives a power failure. No
// checkpoint falls into the measured time, because its position would affect the
// result more than the contestant. Autovacuum is on.
var Settings = map[string]string{
	"shared_buffers":          "512MB",
	"fsync":                   "on",
	"synchronous_commit":      "on",
	"full_page_writes":        "on",
	"min_wal_size":            "4GB",
	"max_wal_size":            "16GB",
	"checkpoint_timeout":      "1h",
	"track_activities":        "on",
	"track_io_timing":         "off",
	"log_min_duration_sample": "-1",
}

// Rig is a running server and the programs built from this checkout.
type Rig struct {
	Server *devpg.Server
	Root   string // folder of the main module
	Lab    string // folder of this module
	daemon string // program files
	worker string
	dir    string // folder of sockets and programs
}

// Options are the options of Start.
type Options struct {
	Daemon   string            // an existing dispatcherd binary; empty = build this checkout
	Worker   string            // an existing binary of noop/; empty = build this checkout
	Settings map[string]string // settings in addition to the package's
	Log      int               // gigabytes of log to write at the start; 0 = one
}

// Start builds the programs and starts the server.
func Start(ctx context.Context, o Options) (_ *Rig, err error) {
	r := &Rig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.Lab, err = moduleDir(ctx); err != nil {
		return nil, err
	}
	r.Root = filepath.Dir(filepath.Dir(r.Lab))
	if r.dir, err = os.MkdirTemp("", "dispatcherd-bench-"); err != nil {
		return nil, fmt.Errorf("creating the folder of sockets: %w", err)
	}
	if err = r.build(ctx, o); err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, from := range []map[string]string{Settings, o.Settings} {
		maps.Copy(settings, from)
	}
	if r.Server, err = devpg.Start(ctx, devpg.Options{Settings: settings}); err != nil {
		return nil, err
	}
	return r, r.warmLog(ctx, max(1, o.Log))
}

// Close stops the server and removes everything.
func (r *Rig) Close() error {
	var errs []error
	if r.Server != nil {
		errs = append(errs, r.Server.Stop())
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}

// moduleDir returns the folder of this module. It works in any folder of it.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go list of the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(filepath.Dir(mod)) != "lab" {
		return "", fmt.Errorf("run this inside the folder tools/lab of the checkout (the module here is %q)", mod)
	}
	return filepath.Dir(mod), nil
}

func (r *Rig) build(ctx context.Context, o Options) (err error) {
	if r.worker, err = r.program(ctx, o.Worker, "noop", r.Lab, "./noop"); err != nil {
		return err
	}
	r.daemon, err = r.program(ctx, o.Daemon, "dispatcherd", r.Root, "./cmd/dispatcherd")
	return err
}

// program returns the existing binary, or builds one.
func (r *Rig) program(ctx context.Context, before, name, dir, pkg string) (string, error) {
	if before != "" {
		return filepath.Abs(before)
	}
	file := filepath.Join(r.dir, name)
	return file, Build(ctx, dir, file, pkg)
}

// Build builds a package of the module in dir into the file out.
func Build(ctx context.Context, dir, out, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", out, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s in %s: %w\n%s", pkg, dir, err, said.String())
	}
	return nil
}
