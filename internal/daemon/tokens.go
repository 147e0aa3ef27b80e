package daemon

import (
	"context"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/api"
)

// readTokens reads the bearer tokens of a file.
func readTokens(path string) (*api.Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--api-tokens: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	tokens, err := api.ReadTokens(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("--api-tokens %s: %w", path, err)
	}
	return tokens, nil
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
		tokens, err := readTokens(path)
		if err != nil {
			d.log.Error("the token file is invalid: the current tokens remain valid", zap.Error(err))
			continue
		}
		d.api.tokens.Store(tokens)
		d.log.Info("tokens reloaded", zap.String("file", path), zap.Int("tokens", tokens.Len()))
	}
}
