package rig

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
)

// Decisions returns the decision log of the daemon's current process, the oldest entry first.
func (d *Daemon) Decisions(ctx context.Context) (log []decisionlog.Line, err error) {
	bundle, err := d.get(ctx, "/debug/bundle")
	if err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(strings.NewReader(bundle))
	if err != nil {
		return nil, err
	}
	files := tar.NewReader(unpacked)
	for {
		file, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("the bundle has no decision log: %w", err)
		}
		if strings.HasSuffix(file.Name, "decisions.jsonl") {
			break
		}
	}
	for lines := json.NewDecoder(files); ; {
		var line decisionlog.Line
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return log, nil
		} else if err != nil {
			return nil, err
		}
		log = append(log, line)
	}
}

// Ask runs a command of dispatcherd that asks the daemon, and returns what it prints.
func (r *Rig) Ask(ctx context.Context, d *Daemon, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, r.Own.Daemon, append(args, "--api-socket", d.API)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("dispatcherd %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}
