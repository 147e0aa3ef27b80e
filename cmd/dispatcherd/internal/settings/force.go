package settings

import (
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
