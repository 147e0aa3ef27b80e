package daemon

import (
	"context"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/api"
)

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

// reload reads the file of tokens anew whenever it is told to, until ctx is done.
// A file that cannot be used changes nothing: whoever may come in goes on doing so,
// and nobody is locked out by a typing error.
func (d *Daemon) reload(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.cfg.Reload:
		}
		path := d.cfg.API.TokenFile
		if d.cfg.API.Listen == "" || path == "" {
			d.log.Info("told to read the tokens anew; there is no file of them in use")
			continue
		}
		tokens, err := readTokens(path)
		if err != nil {
			d.log.Error("the tokens of before stay in use", zap.Error(err))
			continue
		}
		d.tokens.Store(tokens)
		d.log.Info("tokens read anew", zap.String("file", path), zap.Int("tokens", tokens.Len()))
	}
}
