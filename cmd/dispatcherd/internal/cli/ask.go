package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Patience bounds a request with a JSON answer, or a command with a few of them. It is longer than the time in which a
// dispatcher answers or reports that Postgres does not answer.
const Patience = 30 * time.Second

// Dispatcher says how to reach a dispatcher: by URL if it is set, else by the Unix socket.
type Dispatcher struct {
	Socket string                  // path of the API socket
	URL    string                  // of the API on TCP, such as http://127.0.0.1:8088; "" = use Socket
	Token  string                  // bearer token, for TCP
	Proofs workerproto.Credentials // for TCP
}

// String names the dispatcher in messages.
func (d *Dispatcher) String() string {
	if d.URL != "" {
		return d.URL
	}
	return d.Socket
}

// OverAPI calls do, which may use the client of the invocation, and explains its error.
func (a *Invocation) OverAPI(do func() error) error {
	options, flag := client.Options{Socket: a.API.Socket}, "--api-socket"
	switch {
	case a.API.URL != "":
		options, flag = client.Options{URL: a.API.URL, Token: a.API.Token, Credentials: a.API.Proofs}, "--api"
	case a.API.Token != "" && a.origins["api-token"] == "": // one of the environment or the file may serve other commands
		return exit.Usagef("--api-token is only for an API on TCP: add --api, for example --api http://127.0.0.1:8088")
	}
	options.Warned = a.warn
	c, err := client.New(options)
	if err != nil {
		return exit.Usagef("%s: %w", flag, err)
	}
	defer c.Close()
	a.client = c
	return a.Explain(do())
}

// warn reports a warning in the answer to an insertion.
func (a *Invocation) warn(text string) { a.Say("warning: %s", text) }

// IsMissing reports whether a dispatcher says that it has no such object.
func IsMissing(err error) bool {
	p, ok := errors.AsType[*client.Problem](err)
	return ok && p.Type == client.TypeNotFound
}

// Call makes a call with a JSON body, or without one if it is nil, and returns the answer.
func Call[T any](ctx context.Context, a *Invocation, method, path string, body any) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return client.Call[T](ctx, a.client, method, path, body)
}

// Page reads a page of a list. parameters is a struct for [rest.Encode].
func Page[P any](ctx context.Context, a *Invocation, path string, parameters any) (P, error) {
	return Call[P](ctx, a, http.MethodGet, path+"?"+rest.Encode(parameters).Encode(), nil)
}

// Do sends a request and returns the answer. Both may have any length.
func (a *Invocation) Do(ctx context.Context, method, path string, header http.Header, body io.Reader) ([]byte, error) {
	res, err := a.client.Send(ctx, method, path, body, header)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	return io.ReadAll(res.Body)
}

// plain are the problems whose detail says everything.
var plain = []string{rest.InvalidRequest.Name, rest.InvalidJob.Name, rest.NotFound.Name, rest.Conflict.Name, rest.NoSlot.Name}

// Explain adds the exit code and the next step to an error of a request. An error with an exit code remains, and one of the output.
func (a *Invocation) Explain(err error) error {
	_, coded := errors.AsType[*exit.Error](err)
	p, refused := errors.AsType[*client.Problem](err)
	file, isFile := errors.AsType[*fs.PathError](err) // of a body that is a file
	switch {
	case err == nil, coded, isFile && file.Op == "write", errors.Is(err, context.Canceled):
		return err
	case refused && p.Name() == rest.InvalidJob.Name:
		return exit.Usagef("%s", p.Detail)
	case refused && slices.Contains(plain, p.Name()):
		return exit.Errorf(codeOf(p.Status), "%s", p.Detail)
	case refused && p.Name() == rest.Unauthorized.Name:
		return exit.Errorf(codeOf(p.Status), "%w (--api-token or DISPATCHERD_API_TOKEN)", p)
	case refused:
		return exit.Errorf(codeOf(p.Status), "%w", p)
	case isFile:
		return exit.Usagef("reading the input: %w", file)
	case strings.Contains(err.Error(), "malformed HTTP "): // a frame
		return exit.Usagef("%s does not speak HTTP, so it is probably the listener for workers: give the API of the dispatcher, "+
			"with --api-socket or --api", &a.API)
	case errors.Is(err, client.ErrUnknownOutcome):
		return exit.Errorf(exit.Unavailable, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return exit.Errorf(
			exit.Unavailable,
			"%s may not be opened by this user: %w; join the group of the dispatcher, ask as its user, or use TCP and a token (--api)",
			&a.API,
			err,
		)
	}
	return exit.Errorf(
		exit.Unavailable,
		"no dispatcher answers on %s: %w; start one with 'dispatcherd dev' or 'dispatcherd serve', or name a running one with "+
			"--api-socket or --api",
		&a.API,
		causeOf(err),
	)
}

// causeOf leaves out the URL of the call, which says nothing to a user.
func causeOf(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
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
