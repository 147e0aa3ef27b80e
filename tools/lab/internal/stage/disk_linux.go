package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

const tablespace = "chaos_small"

// disk is a small file system in memory that can be filled.
type disk struct{ dir string }

// CanMount reports whether this user may mount a file system of limited size.
func CanMount() bool { return os.Geteuid() == 0 }

func (s *Stage) mountDisk(ctx context.Context, megabytes int) (*disk, error) {
	d := &disk{dir: filepath.Join(s.dir, "disk")}
	if err := os.Mkdir(d.dir, 0o711); err != nil {
		return nil, err
	}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0711", megabytes)); err != nil {
		return nil, fmt.Errorf("mounting a small disk at %s: %w", d.dir, err)
	}
	data := filepath.Join(d.dir, "data")
	owner, err := s.Postgres.DataOwner()
	if err == nil {
		err = os.Mkdir(data, 0o700)
	}
	if err == nil {
		err = os.Chown(data, int(owner.Uid), int(owner.Gid))
	}
	if err == nil {
		err = s.Postgres.Exec(ctx, "postgres", `DROP TABLESPACE IF EXISTS `+tablespace, `CREATE TABLESPACE `+tablespace+` LOCATION '`+data+`'`)
	}
	if err != nil {
		return nil, errors.Join(err, syscall.Unmount(d.dir, syscall.MNT_DETACH))
	}
	return d, nil
}

// FillDisk fills the small disk and returns a function that frees the space.
func (s *Stage) FillDisk() (free func() error, err error) {
	name := filepath.Join(s.disk.dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(f, endless{})
	if cerr := f.Close(); !errors.Is(err, syscall.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("filling the disk: %w", err), cerr, os.Remove(name))
	}
	return func() error { return os.Remove(name) }, nil
}

type endless struct{}

// Read implements io.Reader.
func (endless) Read(b []byte) (int, error) { return len(b), nil }

func (d *disk) unmount(ctx context.Context, p *rig.Postgres) error {
	return errors.Join(p.Exec(ctx, "postgres", `DROP TABLESPACE `+tablespace), syscall.Unmount(d.dir, syscall.MNT_DETACH))
}
