package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func (a *app) debugCommand() *cobra.Command {
	return cli.Group("debug", "Collect diagnostic data from a running dispatcher", a.debugBundleCommand())
}

func (a *app) debugBundleCommand() *cobra.Command {
	var file string
	var force bool
	cmd := cli.New("bundle", "Write diagnostic data of a running dispatcher to a file",
		"  dispatcherd debug bundle\n  dispatcherd debug bundle --file b.tar.gz && tar -xzOf b.tar.gz decisions.jsonl | jq .",
		`Writes a compressed tar archive about a running dispatcher: version, configuration (secrets
masked), metrics, stacks of all goroutines, decision log (decisions.jsonl). It contains no payloads,
results or error texts of workers. Only root and the user of the dispatcher may request it.`)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			file = "dispatcherd-" + time.Now().Format("20060102-150405") + ".tar.gz"
		}
		if !force {
			if err := cli.MustBeNew("--file", file); err != nil {
				return err
			}
		}
		return a.OverAPI(func() error {
			n, err := a.saveBundle(cmd.Context(), file)
			if err != nil {
				return err
			}
			return a.PrintLine("bundle", map[string]any{"file": file, "bytes": n}, "%s", file)
		})
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "path of the archive (default: dispatcherd-DATE-TIME.tar.gz in the current directory)")
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	cli.OnlyOnCommandLine(cmd.Flags())
	return cmd
}

// bundleTimeout bounds the transfer of a bundle.
const bundleTimeout = time.Minute

// saveBundle writes a bundle to a file, when it is complete, and returns its size.
func (a *app) saveBundle(ctx context.Context, file string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	archive, err := a.Do(ctx, http.MethodGet, daemon.BundlePath, nil, http.NoBody)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(file, archive, 0o600); err != nil {
		return 0, exit.Usagef("--file %s cannot be written: %w", file, errors.Unwrap(err)) // it names the file, too
	}
	return len(archive), nil
}
