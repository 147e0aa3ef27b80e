package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// authority is a certificate authority of a test.
type authority struct {
	t    *testing.T
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes an authority, whose certificate is in the file NAME.pem.
func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: dir, name: name}
	a.sign(name, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	return a
}

// sign makes a certificate for localhost and 127.0.0.1, and returns its files.
func (a *authority) sign(name string, change func(*x509.Certificate)) (cert, key string) {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(c)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, own
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &own.PublicKey, signer)
	require.NoError(a.t, err)
	if a.cert == nil {
		a.cert, err = x509.ParseCertificate(der)
		require.NoError(a.t, err)
		a.key = own
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(a.t, err)
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	replaceFile(a.t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	replaceFile(a.t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key
}

// forLocalhost makes a certificate one of a dispatcher on this host.
func forLocalhost(c *x509.Certificate) {
	c.DNSNames, c.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
}

// file returns the file with the certificate of the authority.
func (a *authority) file() string { return filepath.Join(a.dir, a.name+".pem") }

// replaceFile replaces a file as a whole.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// tokenLine is the line of a token in the token file.
func tokenLine(name, token, role string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %x %s", name, sha256.Sum256([]byte(token)), role)) + "\n"
}

// secured is a dispatcher with TLS on both addresses.
type secured struct {
	*child

	w            *world
	cfg          daemon.Config
	ca           *authority
	tokens       string // file
	workers, api string // addresses
}

// secure starts a dispatcher with TLS. Token "work" has the role worker, "all" has all rights.
func (w *world) secure(more ...string) *secured {
	w.t.Helper()
	s := &secured{w: w, cfg: w.config("d"), ca: newAuthority(w.t, w.dir, "ca"), tokens: filepath.Join(w.dir, "tokens")}
	cert, key := s.ca.sign("server", forLocalhost)
	replaceFile(w.t, s.tokens, tokenLine("render", "work", "worker")+tokenLine("anna", "all", ""))
	s.child = w.serve(s.cfg, append([]string{
		"--log-format", "json", "--worker-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0", "--api-tokens", s.tokens,
		"--tls-cert", cert, "--tls-key", key,
	}, more...)...)
	address := func(what string) string {
		said := regexp.MustCompile(`"msg":"` + what + `","address":"(127\.0\.0\.1:\d+)"`).FindStringSubmatch(s.errors.text())
		require.NotNil(w.t, said, s.errors.text())
		return said[1]
	}
	s.workers, s.api = address("workers on TCP"), address("API on TCP")
	return s
}

// secretFile returns a file that only its user may read.
func (w *world) secretFile(name, text string) string {
	path := filepath.Join(w.dir, name)
	replaceFile(w.t, path, text)
	return path
}

// A worker on another host needs the address, a token and the authority.
func TestWorkerOverTLSDoesAJob(t *testing.T) {
	w := newWorld(t)
	s := w.secure()
	c := w.program("worker", "run", "--dispatcher", "tls://"+s.workers, "--token-file", w.secretFile("work", "work\n"), "--ca", s.ca.file(),
		"--types", "x", "--", "true")
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.Contains(t, c.errors.text(), "connected to d on tls://"+s.workers)
	require.Contains(t, s.errors.text(), `"user":"render","address":"127.0.0.1"`)
}
