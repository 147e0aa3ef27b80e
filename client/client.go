package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Options say how to reach a dispatcher. Exactly one of Socket, URL and Dispatcher is required.
type Options struct {
	Socket string // path of the API's Unix socket
	URL    string // address of the API on TCP, such as http://127.0.0.1:8088
	// Dispatcher has addresses of the API, separated by commas: unix:///path, tls://host:port, or tcp://127.0.0.1:port. Each connection goes
	// to the first dispatcher that answers.
	Dispatcher  string
	Token       string                  // bearer token, for TCP
	Credentials workerproto.Credentials // for TCP
	// Connections bounds the connections kept open between calls; 0 = 64.
	Connections int
	// Warned is called with each warning in the answer to an insertion: why a job that was inserted cannot run now, or never can, for
	// example because no slot of any dispatcher supports its type. Client.DrainDispatcher warns if no other dispatcher accepts workers.
	// nil = they are ignored.
	Warned func(warning string)
}

// Client sends requests to one dispatcher. It is safe for use by many goroutines. On a
// Unix socket, and with Options.Dispatcher, all requests are frames on one connection. With a URL they are HTTP requests,
// and each waiting call holds one connection.
type Client struct {
	base, token string
	proofs      workerproto.Credentials
	warned      func(string)
	http        *http.Client
	frames      *frameClient // nil with a URL
}

// idleTimeout is how long an unused connection is kept. It is shorter than the dispatcher's
// idle timeout of 2 min, because a request fails if the dispatcher closes the connection while
// the request is sent.
const idleTimeout = time.Minute

// CheckURL returns an error if a URL is not one of a dispatcher. The error does not contain the URL,
// because that may contain a password.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New(
			"the URL of a dispatcher has scheme and host, and no user or password, such as http://127.0.0.1:8088; a token is given apart",
		)
	}
	return nil
}

// New returns a client. It connects when it is first used. The error says which option is wrong.
func New(o Options) (*Client, error) {
	kept := cmp.Or(max(0, o.Connections), 64)
	transport := &http.Transport{MaxIdleConnsPerHost: kept, DisableCompression: true, IdleConnTimeout: idleTimeout}
	c := &Client{
		base: strings.TrimSuffix(o.URL, "/"), token: o.Token, proofs: o.Credentials, warned: o.Warned, http: &http.Client{Transport: transport},
	}
	var addresses workerproto.Addresses
	var err error
	switch {
	case o.Socket != "" && o.URL != "", o.Dispatcher != "" && o.Socket+o.URL != "":
		return nil, errors.New("both a socket and a URL are given: choose one")
	case o.Socket != "":
		addresses, err = workerproto.Addresses{workerproto.SocketAddress(o.Socket)}, workerproto.CheckSocketPath(o.Socket)
	case o.Dispatcher != "":
		addresses, err = workerproto.ParseAddresses(o.Dispatcher)
	case o.URL == "":
		err = errors.New("no dispatcher is named: give Socket or URL, or Dispatcher")
	default:
		err = CheckURL(o.URL)
		if o.Credentials.CA+o.Credentials.Cert != "" {
			transport.DialTLSContext = func(ctx context.Context, _, host string) (net.Conn, error) {
				return workerproto.TLSAddress(host).Connect(ctx, &c.proofs, httpProtocol)
			}
		}
	}
	if err == nil {
		err = o.Credentials.Check()
	}
	if err != nil {
		return nil, err
	}
	if addresses != nil {
		c.base, c.frames = "http://dispatcherd", &frameClient{dial: func() (*workerproto.CallerConn, error) {
			return first(addresses, func(a workerproto.Address) (*workerproto.CallerConn, error) {
				return workerproto.DialCaller(context.Background(), a, &c.proofs, c.token, "") // bounds the wait for the welcome
			})
		}}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return first(addresses, func(a workerproto.Address) (net.Conn, error) { return a.Connect(ctx, &c.proofs, httpProtocol) })
		}
	}
	return c, nil
}

// httpProtocol is the protocol of HTTP on a connection with TLS (ALPN).
const httpProtocol = "http/1.1"

// first connects to the first dispatcher that answers.
func first[C any](list workerproto.Addresses, dial func(workerproto.Address) (C, error)) (conn C, err error) {
	for _, a := range list {
		if conn, err = dial(a); err == nil {
			return conn, nil
		}
	}
	return conn, err
}

// Close closes idle connections. Calls in progress continue.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	if c.frames != nil {
		c.frames.close()
	}
}

// Problem is an error that a dispatcher reports (RFC 9457). docs/reference/api.md lists its types.
type Problem = rest.Problem //nolint:errname // RFC 9457 calls it a problem

// The types of problems that programs branch on.
const (
	TypeJobFailed      = "urn:dispatcherd:problem:job-failed"
	TypeJobCancelled   = "urn:dispatcherd:problem:job-cancelled"
	TypeDeadlinePassed = "urn:dispatcherd:problem:deadline-passed"
	TypePaused         = "urn:dispatcherd:problem:type-paused"
	TypeNoSlot         = "urn:dispatcherd:problem:no-slot-supports-type"
	TypeQueueFull      = "urn:dispatcherd:problem:queue-full"
	TypeStopping       = "urn:dispatcherd:problem:stopping"
	TypeNotFound       = "urn:dispatcherd:problem:not-found"
	TypeConflict       = "urn:dispatcherd:problem:conflict"
	TypeCount          = "urn:dispatcherd:problem:unexpected-count"
	TypeKeyReused      = "urn:dispatcherd:problem:idempotency-key-reused"
	TypeForbidden      = "urn:dispatcherd:problem:forbidden"
	TypeUnavailable    = "urn:dispatcherd:problem:unavailable"
)

// The largest answers that are read, in bytes.
const (
	maxAnswer  = 16 << 20
	maxProblem = 1 << 20
)

// Send makes an HTTP call that has no method of its own (docs/reference/api.md). The body is JSON unless the header says otherwise.
// The caller closes the body of the answer. If the dispatcher refuses the call, the error is a *Problem.
func (c *Client) Send(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	maps.Copy(req.Header, header)
	token := c.token
	if token == "" {
		token, err = c.proofs.Token()
	}
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.http.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		failed.Err = c.proofs.Explain(httpProtocol, failed.Err)
	}
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }() // the body was read
	return nil, readProblem(res)
}

// Call makes an HTTP call like [Client.Send], with a value as its JSON body, or without a body if the value is nil. It returns the
// answer, which has at most 16 MiB of JSON.
func Call[T any](ctx context.Context, c *Client, method, path string, body any) (answer T, err error) {
	_, err = c.exchange(ctx, method, path, body, &answer)
	return answer, err
}

// exchange makes a call and decodes the answer.
func (c *Client) exchange(ctx context.Context, method, path string, body, into any) (status int, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, fmt.Errorf("the body of the request: %w", err)
		}
	}
	res, err := c.Send(ctx, method, path, bytes.NewReader(text), nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }() // the body was read
	text, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	var answer rest.Warned
	if c.warned != nil && json.Unmarshal(text, &answer) == nil { // the answer of some calls is no object
		for _, w := range answer.Warnings {
			c.warned(w)
		}
	}
	return res.StatusCode, err
}

func readProblem(res *http.Response) error {
	p := &Problem{}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil || json.Unmarshal(text, p) != nil || p.Title == "" {
		p = &Problem{Title: "the dispatcher answered " + res.Status + " without a problem document"}
	}
	p.Status = res.StatusCode
	return p
}

// Cancel cancels a job. The dispatcher cancels a waiting job at once and returns Cancelled. It
// asks the worker of a running job to stop the job and returns Running. A *Problem of type
// TypeNotFound or TypeConflict says that the job does not exist or has ended.
func (c *Client) Cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error) {
	job, err := Call[contract.Job](ctx, c, http.MethodDelete, rest.JobPath(id), nil)
	return job.Status, err
}
