package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func (a *app) debugCommand() *cobra.Command {
	return settings.Group("debug", "Collect diagnostic data from a running dispatcher", a.debugBundleCommand())
}

func (a *app) debugBundleCommand() *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write diagnostic data of a running dispatcher to a file",
		Args:  settings.NoArguments,
		Long: `Writes a compressed tar archive about a running dispatcher: version, configuration (secrets
masked), metrics, stacks of all goroutines, decision log (decisions.jsonl). It contains no payloads,
results or error texts of workers. Only root and the user of the dispatcher may request it.`,
		Example: "  dispatcherd debug bundle\n  dispatcherd debug bundle --file incident.tar.gz && tar -xzOf incident.tar.gz " +
			"decisions.jsonl | jq .",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				file = "dispatcherd-" + time.Now().Format("20060102-150405") + ".tar.gz"
			}
			if !force {
				if err := settings.MustBeNew("--file", file); err != nil {
					return err
				}
			}
			n, err := a.saveBundle(cmd.Context(), file)
			if err != nil {
				return err
			}
			return a.PrintLine("bundle", map[string]any{"file": file, "bytes": n}, file)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "path of the archive (default: dispatcherd-DATE-TIME.tar.gz in the current directory)")
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	settings.OnlyOnCommandLine(cmd.Flags())
	a.APISocketFlag(cmd.Flags())
	return cmd
}

// bundleTimeout bounds the transfer of a bundle.
const bundleTimeout = time.Minute

// saveBundle writes a bundle to a file.
func (a *app) saveBundle(ctx context.Context, file string) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	var written error // apart from the error of the call, which names the dispatcher
	err = a.API.Do(ctx, http.MethodGet, daemon.BundlePath, nil, http.NoBody, func(archive io.Reader) error {
		n, written = writeFile(file, archive)
		return nil
	})
	return n, cmp.Or(err, written)
}

// writeFile writes a temporary file and renames it when it is complete.
func writeFile(file string, content io.Reader) (n int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(file), ".dispatcherd-*")
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return 0, exit.Errorf(exit.Usage, "--file %s cannot be written: %w", file, path.Err) // path.Err does not contain the temporary name
	}
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(f, content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("writing %s: %w", file, err), os.Remove(f.Name()))
	}
	return n, nil
}
