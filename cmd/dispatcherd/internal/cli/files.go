package cli

import (
	"errors"
	"io"
	"os"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// MustBeNew is for commands that replace a file only with --force. It returns an error if one
// of the paths exists. what names the setting that contains the paths.
func MustBeNew(what string, paths ...string) error {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return exit.Errorf(exit.Conflict, "%s: %s exists; give another name, or --force to replace it", what, path)
		}
	}
	return nil
}

// OpenFile opens a file, or standard input for "-".
func (a *Invocation) OpenFile(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.In), nil
	}
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, exit.Errorf(exit.NotFound, "there is no file %s", name)
	}
	if err != nil {
		return nil, exit.Usagef("opening the input: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_ = f.Close() // nothing was read
		return nil, exit.Usagef("%s is a folder: name a file in it, or give - for standard input", name)
	}
	return f, nil
}

// ReadFile reads a whole file, or standard input for "-", of at most so many bytes.
func (a *Invocation) ReadFile(name string, most int) ([]byte, error) {
	f, err := a.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	switch {
	case err != nil:
		return nil, exit.Usagef("reading %s: %w", name, err)
	case len(text) > most:
		return nil, exit.Usagef("%s has more than %d bytes", name, most)
	}
	return text, nil
}
