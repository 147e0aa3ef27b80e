// Package ask sends requests to the API of a running dispatcher and maps its problems to
// errors with exit codes.
package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// patience bounds a request with a JSON answer. It is longer than the time in which a
// dispatcher answers or reports that Postgres does not answer.
const patience = 30 * time.Second

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

// check returns an error for an impossible address.
func (d *Dispatcher) check() error {
	if d.URL != "" {
		if err := client.CheckURL(d.URL); err != nil {
			return exit.Errorf(exit.Usage, "--api: %w", err)
		}
		return nil
	}
	if err := workerproto.CheckSocketPath(d.Socket); err != nil {
		return exit.Errorf(exit.Usage, "--api-socket: %w", err)
	}
	return nil
}

// Client returns a client for requests. The caller must close it.
func (d *Dispatcher) Client() (*client.Client, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if d.URL != "" {
		return client.New(client.Options{URL: d.URL, Token: d.Token})
	}
	return client.New(client.Options{Socket: d.Socket})
}

// Missing returns notFound with the name of a row, if a dispatcher says that there is no such row; otherwise err.
func Missing(row, name string, err, notFound error) error {
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Type == client.TypeNotFound {
		return fmt.Errorf("%s %q: %w", row, name, notFound)
	}
	return err
}

// ExplainOther is Explain for an error that has no exit code and is not notFound. The text is that which the same operation on the table has.
func (d *Dispatcher) ExplainOther(err, notFound error) error {
	if _, coded := errors.AsType[*exit.Error](err); err == nil || coded || errors.Is(err, notFound) {
		return err
	}
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Detail != "" {
		return exit.Errorf(codeOf(p.Status), "%s", p.Detail)
	}
	return d.Explain(err)
}

// JSON decodes the answer to a GET. The error names the dispatcher that does not answer, or
// contains the refusal.
func (d *Dispatcher) JSON(ctx context.Context, path string, into any) error {
	return d.Call(ctx, http.MethodGet, path, nil, into)
}

// Call sends a request with a JSON body, or without a body if it is nil, and decodes the answer.
func (d *Dispatcher) Call(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	answer, err := d.send(ctx, method, path, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }() // it was read
	return json.NewDecoder(answer).Decode(into)
}

// Upload posts a body of any length and decodes the answer.
func (d *Dispatcher) Upload(ctx context.Context, path, kind string, body io.Reader, into any) error {
	answer, err := d.send(ctx, http.MethodPost, path, kind, body)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }() // it was read
	return json.NewDecoder(answer).Decode(into)
}

// Slots returns a page of the slots.
func (d *Dispatcher) Slots(ctx context.Context, q httpapi.SlotQuery) (page httpapi.SlotList, err error) {
	query := url.Values{"limit": {strconv.Itoa(q.Limit)}, "type": {q.Type}}
	if q.After != 0 {
		query.Set("after", strconv.FormatInt(q.After, 10))
	}
	err = d.JSON(ctx, "/v1/slots?"+query.Encode(), &page)
	return page, err
}

// Body returns the body of a successful answer to a GET, of any length. The caller must close
// it; ctx also bounds reading it.
func (d *Dispatcher) Body(ctx context.Context, path string) (io.ReadCloser, error) {
	return d.send(ctx, http.MethodGet, path, "", http.NoBody)
}

// transport connects to the socket, or to the host of the URL.
func (d *Dispatcher) transport() *http.Transport {
	t := &http.Transport{DisableKeepAlives: true}
	if d.URL == "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
		}
	}
	return t
}

func (d *Dispatcher) send(ctx context.Context, method, path, kind string, body io.Reader) (io.ReadCloser, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	base := "http://dispatcherd"
	if d.URL != "" {
		base = strings.TrimSuffix(d.URL, "/")
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--api: %w", err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if d.URL != "" && d.Token != "" {
		req.Header.Set("Authorization", "Bearer "+d.Token)
	}
	res, err := (&http.Client{Transport: d.transport()}).Do(req)
	if err != nil {
		return nil, d.Explain(err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		defer func() { _ = res.Body.Close() }() // it was read
		var p client.Problem
		_ = json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&p) // the status is sufficient if this fails
		if p.Status = res.StatusCode; p.Title == "" {
			return nil, exit.Errorf(codeOf(p.Status), "the dispatcher on %s answered %s", d, res.Status)
		}
		return nil, d.Explain(&p)
	}
	return res.Body, nil
}

// Explain adds the exit code and the next step to an error of a request.
func (d *Dispatcher) Explain(err error) error {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		code := codeOf(p.Status)
		if p.Type == problem.Namespace+problem.InvalidJob.Name { // as without a dispatcher
			code = exit.Usage
		}
		return exit.Errorf(code, "%s", p.Error())
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, client.ErrUnknownOutcome):
		return exit.Errorf(exit.Unavailable, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return exit.Errorf(
			exit.Unavailable,
			"%s may not be opened by this user: %w; join the group of the dispatcher, or ask as its user",
			d,
			err,
		)
	case d.URL != "":
		return exit.Errorf(exit.Unavailable, "no dispatcher answers on %s: %w; is it running, and is --api right?", d, err)
	}
	return exit.Errorf(exit.Unavailable, "no dispatcher answers on %s: %w; is it running, and is --api-socket right?", d, err)
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
