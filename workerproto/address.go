package workerproto

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// The protocols that a connection with TLS names (ALPN). A listener refuses the protocols of other listeners.
const (
	WorkerProtocol = "dispatcherd-worker"
	CallerProtocol = "dispatcherd-caller"
)

// Address is the address of a dispatcher.
type Address struct {
	scheme string // unix, tls or tcp
	target string // a path, or host and port
}

// Addresses are the addresses of dispatchers, in the order in which they are tried.
type Addresses []Address

// ErrAddress says that a text is not a list of addresses.
var ErrAddress = errors.New("no address of a dispatcher")

// ParseAddresses reads addresses that are separated by commas. unix:///path is a Unix socket. tls://host:port is a listener
// with TLS. tcp://host:port is a listener without TLS, on loopback. A path contains %2C for a comma.
func ParseAddresses(text string) (list Addresses, err error) {
	for part := range strings.SplitSeq(text, ",") {
		a, err := parseAddress(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// ParseWorkerAddresses reads the addresses for a worker: all are Unix sockets, or none is. The kind decides who the worker is, and no
// dispatcher lets a worker resume the executions of another one.
func ParseWorkerAddresses(text string) (Addresses, error) {
	list, err := ParseAddresses(text)
	for _, a := range list {
		if (a.scheme == "unix") != (list[0].scheme == "unix") {
			err = fmt.Errorf("%s and %s: a worker that moves between a Unix socket and TCP cannot continue its jobs: give addresses of one kind",
				list[0], a)
		}
	}
	return list, err
}

func parseAddress(text string) (a Address, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "": // the text may contain a password
		return a, fmt.Errorf("%w: give unix:///path, tls://host:port, or tcp://127.0.0.1:port, and a token apart", ErrAddress)
	case u.Scheme == "unix" && u.Host == "":
		return SocketAddress(u.Path), CheckSocketPath(u.Path)
	case (u.Scheme == "tls" || u.Scheme == "tcp") && u.Hostname() != "" && u.Port() != "" && strings.Trim(u.Path, "/") == "":
		a = Address{u.Scheme, u.Host}
	default:
		return a, fmt.Errorf("%q is %w: give unix:///path, tls://host:port, or tcp://127.0.0.1:port", text, ErrAddress)
	}
	if a.scheme == "tcp" && !IsLoopback(u.Hostname()) {
		return a, fmt.Errorf("%q is %w: tcp is only for this host, because tokens and jobs are not encrypted: give tls://%s",
			text, ErrAddress, a.target)
	}
	return a, nil
}

// IsLoopback reports whether a host is this host in each network.
func IsLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// String returns the address as ParseAddresses reads it.
func (a Address) String() string {
	target := a.target
	if a.scheme == "unix" {
		target = strings.NewReplacer("%", "%25", ",", "%2C", "?", "%3F", "#", "%23").Replace(target)
	}
	return a.scheme + "://" + target
}

// Name returns the path of a Unix socket, and otherwise the address, for messages.
func (a Address) Name() string {
	if a.scheme == "unix" {
		return a.target
	}
	return a.String()
}

// SocketAddress returns the address of a Unix socket.
func SocketAddress(path string) Address { return Address{"unix", path} }

// TLSAddress returns the address of a listener with TLS.
func TLSAddress(host string) Address { return Address{"tls", host} }

// connectTimeout bounds a connection attempt, and a TLS handshake.
const connectTimeout = 10 * time.Second

// Connect opens a connection for one of the protocols. It reads the files of the credentials. [Credentials.Explain] explains its error.
func (a Address) Connect(ctx context.Context, c *Credentials, protocol string) (net.Conn, error) {
	network := "tcp"
	var config *tls.Config
	var err error
	switch a.scheme {
	case "unix":
		network = a.scheme
		err = CheckSocketPath(a.target)
	case "tls":
		config, err = c.config(a.target, protocol)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, a.target)
	if err != nil || config == nil {
		return conn, err
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}
