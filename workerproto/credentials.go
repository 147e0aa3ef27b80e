package workerproto

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// Credentials are the files with which a worker or a caller proves who it is, and learns which dispatchers to trust. They are read for each
// connection, so that they can be replaced. On a Unix socket none of them is used.
type Credentials struct {
	TokenFile string // contains the bearer token; "" = none
	CA        string // certificates in PEM that sign those of dispatchers; "" = those of the system
	Cert, Key string // the own certificate and its key in PEM; "" = none
}

// maxBearer is the largest number of bytes of a token.
const maxBearer = 4096

// ErrCredentials says that a file of the credentials cannot be used.
var ErrCredentials = errors.New("unusable credentials")

// Token reads the token. Without a TokenFile it is "".
func (c *Credentials) Token() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	text, err := ReadSecret(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(token) > maxBearer || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%w: token file %s must contain one token of 1 to %d characters without white space",
			ErrCredentials, c.TokenFile, maxBearer)
	}
	return token, nil
}

// ReadSecret reads a file that only its user and its group may read. The error names the file and the remedy.
func ReadSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()            // of the file that is read, which may be replaced
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o006 != 0 && os.PathSeparator == '/' {
		return nil, fmt.Errorf("%s has mode %04o, so other users may read or change it: set its mode to 0600, and make a new secret if "+
			"others had access", path, mode)
	}
	return io.ReadAll(f)
}

// Check reads all files, so that an error is found before the first connection.
func (c *Credentials) Check() error {
	_, err := c.Token()
	if err == nil {
		_, err = c.config("localhost:0", WorkerProtocol)
	}
	return err
}

// config returns the settings of a connection with TLS.
func (c *Credentials) config(target, protocol string) (config *tls.Config, err error) {
	host, _, _ := net.SplitHostPort(target) // ParseAddresses has checked it
	config = &tls.Config{MinVersion: tls.VersionTLS13, ServerName: host, NextProtos: []string{protocol}, DynamicRecordSizingDisabled: true}
	if c.CA != "" {
		config.RootCAs, err = ReadCA(c.CA)
	}
	if err == nil && c.Cert+c.Key != "" {
		config.Certificates = make([]tls.Certificate, 1)
		config.Certificates[0], err = ReadPair(c.Cert, c.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	return config, nil
}

// ReadCA reads a file of certificates in PEM.
func ReadCA(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate in PEM: give the file of the certificate authority", path)
	}
	return pool, nil
}

// ReadPair reads a certificate and its key. Only the user of the key and its group may read it.
func ReadPair(cert, key string) (pair tls.Certificate, err error) {
	if cert == "" || key == "" {
		return pair, fmt.Errorf("certificate %q and key %q belong together: give both files", cert, key)
	}
	public, err := os.ReadFile(cert)
	if err != nil {
		return pair, err
	}
	private, err := ReadSecret(key)
	if err != nil {
		return pair, err
	}
	if pair, err = tls.X509KeyPair(public, private); err != nil {
		return pair, fmt.Errorf("certificate %s and key %s: %w", cert, key, err)
	}
	return pair, nil
}

// alerts say what to do about the alerts with which a dispatcher ends a connection. crypto/tls has no type for them.
var alerts = []struct{ text, meaning string }{
	{"no application protocol", "this is a listener for another protocol: workers connect to --worker-listen, and callers to --api-listen"},
	{"expired certificate", "the dispatcher refuses this certificate, because it has expired: renew the file of FLAGcert"},
	{"unknown certificate authority", "the dispatcher does not know who signed this certificate: use one of its --tls-client-ca"},
	{"bad certificate", "the dispatcher refuses this certificate: use one of the authority in its --tls-client-ca"},
	{"certificate required", "the dispatcher needs a certificate: give FLAGcert and FLAGkey"},
	{"protocol version not supported", "the peer does not speak TLS 1.3"},
}

// Explain adds to an error of a connection with TLS what to do about it. The protocol says whose flags it names.
func (c *Credentials) Explain(protocol string, err error) error {
	if err == nil {
		return nil
	}
	hint, flag := "", "--"
	if protocol != WorkerProtocol {
		flag = "--api-"
	}
	unsigned, isUnsigned := errors.AsType[x509.UnknownAuthorityError](err)
	wrong, isWrong := errors.AsType[x509.HostnameError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case isUnsigned && unsigned.Cert != nil && c.CA == "":
		hint = "the system does not know who signed the dispatcher's certificate: give the file of its authority as " + flag + "ca"
	case isUnsigned:
		hint = "the dispatcher's certificate is not signed by an authority in " + flag + "ca " + c.CA + ": give the file of its authority"
	case isWrong:
		hint = fmt.Sprintf("the dispatcher's certificate is for %s: connect with one of these names, or add the name to the certificate",
			cmp.Or(strings.Join(namesOf(wrong.Certificate), ", "), "no name"))
	case isInvalid && invalid.Reason == x509.Expired:
		hint = "the dispatcher's certificate is not valid now: renew the file of its --tls-cert, or set the clock of this host"
	case plain || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // net/http replaces the error
		hint = "the listener does not use TLS: give the dispatcher --tls-cert and --tls-key, or use tcp:// or http:// on its host"
	}
	for _, alert := range alerts {
		if hint == "" && strings.Contains(err.Error(), "tls: "+alert.text) {
			hint = strings.ReplaceAll(alert.meaning, "FLAG", flag)
		}
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, hint)
}

// namesOf lists the hosts that a certificate names.
func namesOf(cert *x509.Certificate) []string {
	names := cert.DNSNames
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// DialAt connects to a dispatcher with credentials, and sends hello with the token. If the dispatcher refuses the worker, the error is an
// *Error. Others are ErrSocketPath and ErrCredentials.
func DialAt(ctx context.Context, a Address, c *Credentials, hello *Hello) (*Conn, error) {
	return begin(ctx, a, c, WorkerProtocol, func(conn net.Conn, token string) (*Conn, error) {
		hello.Token = token
		return Connect(ctx, conn, hello)
	})
}

// DialCaller connects to a dispatcher with credentials. It is for callers, as DialAt is for workers.
func DialCaller(ctx context.Context, a Address, c *Credentials, token, caller string) (*CallerConn, error) {
	return begin(ctx, a, c, CallerProtocol, func(conn net.Conn, own string) (*CallerConn, error) {
		return ConnectCaller(ctx, conn, caller, cmp.Or(token, own))
	})
}

// begin connects to a dispatcher, and starts a session with the token for it.
func begin[S any](
	ctx context.Context, a Address, c *Credentials, protocol string, start func(conn net.Conn, token string) (S, error),
) (session S, err error) {
	token := ""
	if a.scheme != "unix" {
		token, err = c.Token()
	}
	var conn net.Conn
	if err == nil {
		conn, err = a.Connect(ctx, c, protocol)
	}
	if err == nil {
		session, err = start(conn, token)
	}
	return session, c.Explain(protocol, err)
}
