//go:build !linux

package stage

import (
	"context"
	"errors"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

const tablespace = "chaos_small"

type disk struct{}

var errNoDisk = errors.New("a disk of a given size needs Linux")

// CanMount reports whether this user may mount a file system of limited size.
func CanMount() bool { return false }

func (*Stage) mountDisk(context.Context, int) (*disk, error) { return nil, errNoDisk }

// FillDisk fills the small disk and returns a function that frees the space.
func (*Stage) FillDisk() (func() error, error) { return nil, errNoDisk }

func (*disk) unmount(context.Context, *rig.Postgres) error { return errNoDisk }
