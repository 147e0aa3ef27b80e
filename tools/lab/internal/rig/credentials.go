package rig

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
	"strings"
	"time"
)

// Credentials are the files with which daemons and workers trust each other.
type Credentials struct {
	Cert, Key string   // of the daemons; workers trust Cert
	Tokens    string   // what the daemons know of the tokens
	Token     []string // files of the tokens of workers, each of another user
}

// tokenUsers is the number of tokens. Each counts as a user, and no user may have all sessions of a daemon.
const tokenUsers = 4

// Credentials makes the credentials of daemons that listen on loopback or in a Network.
func (r *Rig) Credentials() (*Credentials, error) {
	dir := filepath.Join(r.Dir, "tls")
	at := func(name string) string { return filepath.Join(dir, name) }
	c := &Credentials{Cert: at("cert.pem"), Key: at("key.pem"), Tokens: at("tokens")}
	for i := range tokenUsers {
		c.Token = append(c.Token, at(fmt.Sprint("token", i)))
	}
	if _, err := os.Stat(c.Tokens); err == nil {
		return c, nil // an earlier part has made them
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := writeCertificate(c.Cert, c.Key); err != nil {
		return nil, err
	}
	var known strings.Builder
	for i, file := range c.Token {
		token := rand.Text()
		fmt.Fprintf(&known, "user%d %x worker\n", i, sha256.Sum256([]byte(token)))
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return c, os.WriteFile(c.Tokens, []byte(known.String()), 0o600)
}

// writeCertificate makes a certificate that is its own authority.
func writeCertificate(cert, key string) error {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "laboratory"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for i := range mostHosts {
		template.IPAddresses = append(template.IPAddresses, centerAddress(i))
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return err
	}
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
}

// FreePort returns a TCP port of loopback that no process uses now.
func FreePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	return port, l.Close()
}

// Flags are the flags of a daemon that listens for remote workers.
func (c *Credentials) Flags(listen string) []string {
	return []string{"--worker-listen", listen, "--tls-cert", c.Cert, "--tls-key", c.Key, "--api-tokens", c.Tokens}
}
