// Package ask sends requests to the API socket of a running dispatcher, for commands that show
// the dispatcher's memory. It maps refusals to errors with exit codes.
package ask

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/problem"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// patience bounds a request with a JSON answer.
const patience = 10 * time.Second

// JSON decodes one answer from the API of the dispatcher behind socket. The error names the
// socket that does not answer, or contains the refusal.
func JSON(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := Body(ctx, socket, path)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was read
	return json.NewDecoder(body).Decode(into)
}

// Body returns the body of a successful answer, of any length. The caller must close it; ctx
// also bounds reading it.
func Body(ctx context.Context, socket, path string) (io.ReadCloser, error) {
	if err := workerproto.CheckSocketPath(socket); err != nil {
		return nil, exit.Errorf(exit.Usage, "--api-socket: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://dispatcherd"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if errors.Is(err, fs.ErrPermission) {
		return nil, exit.Errorf(exit.Unavailable, "%s may not be opened by this user: %w; join the group of the dispatcher, or ask as its user", socket, err)
	}
	if err != nil {
		return nil, exit.Errorf(exit.Unavailable, "no dispatcher answers on %s: %w; is it running, and is --api-socket right?", socket, err)
	}
	if res.StatusCode != http.StatusOK {
		defer func() { _ = res.Body.Close() }() // it was read
		var problem problem.Problem
		_ = json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&problem) // the status is sufficient if this fails
		code := exit.Unavailable
		switch res.StatusCode {
		case http.StatusNotFound:
			code = exit.NotFound
		case http.StatusForbidden, http.StatusConflict:
			code = exit.Conflict
		}
		return nil, exit.Errorf(code, "the dispatcher on %s answered %s: %s", socket, res.Status, problem.Detail)
	}
	return res.Body, nil
}
