package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// devLife is how long the certificates of dev are valid. The authority is made anew when less than half of it is left.
const devLife = 90 * 24 * time.Hour

// devFiles are the files of dev --tls.
type devFiles struct{ ca, caKey, cert, key, token, tokens string }

// prepareTLS completes the settings of dev --tls. It makes an authority and a token, unless there are valid ones, so that copies of them
// stay valid. It always makes a certificate, because the names of this host may have changed. The files are beside the directory of the
// data, or without one in the state directory of the user.
func (a *app) prepareTLS(cfg *daemon.Config, data string) (f devFiles, err error) {
	if cfg.TLS.Cert != "" || cfg.API.TokenFile != "" {
		return f, exit.Usagef("--tls makes a certificate and a token of its own: omit it, or omit --tls-cert and --api-tokens")
	}
	dir := filepath.Clean(data) + "-tls" // beside the data, because Postgres needs an empty directory
	if data == "" {
		state, err := a.UserState()
		if err != nil {
			return f, exit.Usagef("no place for the certificate: %w", err)
		}
		dir = filepath.Join(state, "tls")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return f, err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	f = devFiles{in("ca.pem"), in("ca-key.pem"), in("cert.pem"), in("key.pem"), in("token"), in("tokens")}
	if err := errors.Join(f.makeCertificate(), f.makeToken()); err != nil {
		return f, err
	}
	cfg.TLS.Cert, cfg.TLS.Key, cfg.API.TokenFile = f.cert, f.key, f.tokens
	if cfg.WorkerListen == "" {
		cfg.WorkerListen = ":7411"
	}
	return f, nil
}

// hostNames lists the addresses of this host, those for other hosts first, and its names.
func hostNames() (names []string) {
	addresses, _ := net.InterfaceAddrs() // without addresses the names remain
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			names = append(names, ip.IP.String())
		}
	}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	return append(names, "localhost", "127.0.0.1", "::1")
}

// makeCertificate makes a certificate for all names of this host, and the authority that signs it if there is no valid one.
func (f *devFiles) makeCertificate() error {
	ca, err := workerproto.ReadPair(f.ca, f.caKey) // they may not belong together after a crash
	if err != nil || time.Until(ca.Leaf.NotAfter) < devLife/2 {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: "dispatcherd dev " + rand.Text()[:8]}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}
		if ca, err = issue(f.ca, f.caKey, c, nil); err != nil {
			return err
		}
	}
	c := &x509.Certificate{
		Subject:  pkix.Name{CommonName: "dispatcherd dev"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range hostNames() {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	_, err = issue(f.cert, f.key, c, &ca)
	return err
}

// issue completes a certificate, signs it by an authority, or by itself without one, and writes it and its key.
func issue(cert, key string, c *x509.Certificate, by *tls.Certificate) (pair tls.Certificate, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	c.SerialNumber, c.BasicConstraintsValid = big.NewInt(time.Now().UnixNano()), true
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(devLife)
	parent, signer := c, any(own)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	public, errPublic := x509.CreateCertificate(rand.Reader, c, parent, &own.PublicKey, signer)
	private, errPrivate := x509.MarshalPKCS8PrivateKey(own)
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	if err := errors.Join(errPublic, errPrivate,
		writeSecret(cert, block("CERTIFICATE", public)), writeSecret(key, block("PRIVATE KEY", private))); err != nil {
		return pair, err
	}
	return workerproto.ReadPair(cert, key)
}

// makeToken makes a token, unless there is one. Its hash is written first, so a token that exists is known.
func (f *devFiles) makeToken() error {
	_, err := os.Stat(f.tokens)
	if _, unusable := (&workerproto.Credentials{TokenFile: f.token}).Token(); err == nil && unusable == nil {
		return nil
	}
	token := rand.Text()
	return errors.Join(writeSecret(f.tokens, fmt.Sprintf("dev %x\n", sha256.Sum256([]byte(token)))), writeSecret(f.token, token+"\n"))
}

// writeSecret replaces a file by one that only this user may read.
func writeSecret(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// sayHowToJoin prints what a worker on another host needs.
func (a *app) sayHowToJoin(f devFiles, listen string) {
	_, port, _ := net.SplitHostPort(listen) // the daemon listens there
	host := hostNames()[0]
	login := host
	if user := a.Env["USER"]; user != "" {
		login = user + "@" + host
	}
	fmt.Fprintf(a.Out, "# on another host, for a worker:\nscp -p %s:%s ca.pem\nscp -p %[1]s:%[3]s token\n"+
		"dispatcherd worker run --dispatcher tls://%[4]s --token-file token --ca ca.pem --types echo -- cat\n",
		login, quoted(f.ca), quoted(f.token), net.JoinHostPort(host, port))
}
