package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Patience bounds a request with a JSON answer, or a command with a few of them. It is longer than the time in which a
// dispatcher answers or reports that Postgres does not answer.
const Patience = 30 * time.Second

// Dispatcher says how to reach a dispatcher: by URL if it is set, else by the Unix socket.
type Dispatcher struct {
	Socket string // path of the API socket
	URL    string // of the API on TCP, such as http://127.0.0.1:8088; "" = use Socket
	Token  string // bearer token, for TCP
}

// String names the dispatcher in messages.
func (d *Dispatcher) String() string {
	if d.URL != "" {
		return d.URL
	}
	return d.Socket
}

// With calls do with a client, and explains its error.
func (d *Dispatcher) With(do func(c *client.Client) error) error {
	options, flag := client.Options{Socket: d.Socket}, "--api-socket"
	if d.URL != "" {
		options, flag = client.Options{URL: d.URL, Token: d.Token}, "--api"
	}
	c, err := client.New(options)
	if err != nil {
		return exit.Usagef("%s: %w", flag, err)
	}
	defer c.Close()
	return d.Explain(do(c))
}

// IsMissing reports whether a dispatcher says that it has no such object.
func IsMissing(err error) bool {
	p, ok := errors.AsType[*client.Problem](err)
	return ok && p.Type == client.TypeNotFound
}

// Call makes a call with a JSON body, or without one if it is nil, and returns the answer. The error names the dispatcher that does
// not answer, or contains the refusal.
func Call[T any](ctx context.Context, d *Dispatcher, method, path string, body any) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err = d.With(func(c *client.Client) error {
		answer, err = client.Call[T](ctx, c, method, path, body)
		return err
	})
	return answer, err
}

// Do sends a request, and passes the body of a successful answer to read. Both may have any length.
func (d *Dispatcher) Do(
	ctx context.Context, method, path string, header http.Header, body io.Reader, read func(io.Reader) error,
) error {
	return d.With(func(c *client.Client) error {
		res, err := c.Send(ctx, method, path, body, header)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }() // it was read
		return read(res.Body)
	})
}

// Upload posts lines and decodes the answer. If bad lines reject them all, it returns these with the error.
func (d *Dispatcher) Upload(ctx context.Context, path string, lines io.Reader) (uploaded httpapi.Uploaded, err error) {
	header := http.Header{"Content-Type": {"application/x-ndjson"}}
	err = d.Do(ctx, http.MethodPost, path, header, lines, func(r io.Reader) error { return json.NewDecoder(r).Decode(&uploaded) })
	if p, ok := errors.AsType[*client.Problem](err); ok {
		uploaded.Bad, uploaded.Problems = p.Bad, p.Problems
	}
	return uploaded, err
}

// Page reads a page of a list. parameters is a struct for [rest.Encode].
func Page[P any](ctx context.Context, d *Dispatcher, path string, parameters any) (P, error) {
	return Call[P](ctx, d, http.MethodGet, path+"?"+rest.Encode(parameters).Encode(), nil)
}

// plain are the problems whose detail says everything.
var plain = []string{rest.InvalidRequest.Name, rest.InvalidJob.Name, rest.NotFound.Name, rest.Conflict.Name}

// Explain adds the exit code and the next step to an error of a request. An error with an exit code remains.
func (d *Dispatcher) Explain(err error) error {
	_, coded := errors.AsType[*exit.Error](err)
	p, refused := errors.AsType[*client.Problem](err)
	file, isFile := errors.AsType[*fs.PathError](err) // of a body that is a file
	switch {
	case err == nil, coded, errors.Is(err, context.Canceled):
		return err
	case refused && p.Name() == rest.InvalidJob.Name:
		return exit.Usagef("%s", p.Detail)
	case refused && slices.Contains(plain, p.Name()):
		return exit.Errorf(codeOf(p.Status), "%s", p.Detail)
	case refused:
		return exit.Errorf(codeOf(p.Status), "%w", p)
	case isFile:
		return exit.Usagef("reading the input: %w", file)
	case errors.Is(err, client.ErrUnknownOutcome):
		return exit.Errorf(exit.Unavailable, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return exit.Errorf(
			exit.Unavailable,
			"%s may not be opened by this user: %w; join the group of the dispatcher, ask as its user, or use TCP and a token (--api)",
			d,
			err,
		)
	}
	return exit.Errorf(
		exit.Unavailable,
		"no dispatcher answers on %s: %w; start one with 'dispatcherd serve', or name a running one with --api-socket or --api",
		d,
		err,
	)
}

// CheckJSON returns an error that says in which line a text is not JSON. what names the text.
func CheckJSON(what string, text []byte) error {
	syntax, bad := errors.AsType[*json.SyntaxError](json.Unmarshal(text, new(json.RawMessage)))
	if !bad {
		return nil
	}
	return exit.Usagef("%s is not JSON: line %d: %w", what, bytes.Count(text[:syntax.Offset], []byte("\n"))+1, syntax)
}

// codeOf returns the exit code for the HTTP status of a problem.
func codeOf(status int) int {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return exit.Usage
	case http.StatusNotFound:
		return exit.NotFound
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict:
		return exit.Conflict
	}
	return exit.Unavailable
}
