package daemon

import (
	"context"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// loadTokens reads the file of bearer tokens. From then on these tokens are valid.
func (d *Daemon) loadTokens() error {
	path := d.cfg.API.TokenFile
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--api-tokens: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	tokens, err := httpapi.ReadTokens(io.LimitReader(f, 1<<20))
	if err != nil {
		return fmt.Errorf("--api-tokens %s: %w", path, err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o022 != 0 {
		d.log.Warn("other users may change the token file and add a token of their own: set its mode to 0640 or 0600",
			zap.String("file", path), zap.String("mode", fmt.Sprintf("%04o", info.Mode().Perm())))
	}
	d.api.tokens.Store(&tokens)
	return nil
}

// reload reads the file of tokens again on each signal until ctx is done. If the file is
// invalid, the current tokens remain valid, so that a typing error locks no caller out.
func (d *Daemon) reload(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.cfg.Reload:
		}
		path := d.cfg.API.TokenFile
		if d.cfg.API.Listen == "" || path == "" {
			d.log.Info("the signal to reload the tokens is ignored: no token file is used")
			continue
		}
		if err := d.loadTokens(); err != nil {
			d.log.Error("the token file is invalid: the current tokens remain valid", zap.Error(err))
			continue
		}
		d.log.Info("tokens reloaded", zap.String("file", path), zap.Int("tokens", len(*d.api.tokens.Load())))
	}
}
