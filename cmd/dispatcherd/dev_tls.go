package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
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
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// devLife is how long the certificates of dev are valid. They are made anew when less than half of it is left.
const devLife = 90 * 24 * time.Hour

// devFiles are the files of dev --tls.
type devFiles struct{ ca, cert, key, token, tokens string }

// prepareTLS completes the settings of dev --tls. It makes an authority, whose key it forgets, a certificate and a token, unless there are
// valid ones. They are beside the directory of the data, or without one in the state directory of the user.
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
	f = devFiles{in("ca.pem"), in("cert.pem"), in("key.pem"), in("token"), in("tokens")}
	names := hostNames()
	if !f.valid(names) {
		if err := f.make(names); err != nil {
			return f, err
		}
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

// valid reports whether the files exist, and the certificate is for all names.
func (f *devFiles) valid(names []string) bool {
	for _, path := range []string{f.ca, f.token, f.tokens} {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	pair, err := workerproto.ReadPair(f.cert, f.key)
	return err == nil && time.Until(pair.Leaf.NotAfter) > devLife/2 &&
		!slices.ContainsFunc(names, func(name string) bool { return pair.Leaf.VerifyHostname(name) != nil })
}

// make makes all files.
func (f *devFiles) make(names []string) error {
	life := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(devLife), BasicConstraintsValid: true,
		}
	}
	ca := life(1, "dispatcherd dev "+rand.Text()[:8])
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	cert := life(time.Now().UnixNano(), "dispatcherd dev")
	cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, name)
		}
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	root, errRoot := x509.CreateCertificate(rand.Reader, ca, ca, &signer.PublicKey, signer)
	leaf, errLeaf := x509.CreateCertificate(rand.Reader, cert, ca, &own.PublicKey, signer)
	key, errKey := x509.MarshalPKCS8PrivateKey(own)
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	token := rand.Text()
	return errors.Join(errRoot, errLeaf, errKey,
		writeSecret(f.ca, block("CERTIFICATE", root)), writeSecret(f.cert, block("CERTIFICATE", leaf)),
		writeSecret(f.key, block("PRIVATE KEY", key)),
		writeSecret(f.token, token+"\n"), writeSecret(f.tokens, fmt.Sprintf("dev %x\n", sha256.Sum256([]byte(token)))))
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
