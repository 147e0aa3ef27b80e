package settings

import (
	"os"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// MustBeNew is for commands that replace a file only with --force: it returns an
// error if one of the paths is there. What says which setting is about them.
func MustBeNew(what string, paths ...string) error {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return exit.Errorf(exit.Conflict, "%s: %s is there already; give another name, or --force to replace it", what, path)
		}
	}
	return nil
}
