package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// TLSFiles are the files of the listeners on TCP, in PEM.
type TLSFiles struct {
	Cert, Key string // "" = no TLS
	ClientCA  string // signs the certificates of workers and callers; "" = none has one
}

// Check returns an error if the settings contradict each other.
func (f TLSFiles) Check() error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return fmt.Errorf("--tls-cert %q and --tls-key %q belong together: give both, or none", f.Cert, f.Key)
	case f.ClientCA != "" && f.Cert == "":
		return fmt.Errorf("--tls-client-ca %s needs a listener with TLS: add --tls-cert and --tls-key", f.ClientCA)
	}
	return nil
}

// maxTokenFile bounds the bytes of the file of tokens.
const maxTokenFile = 1 << 20

// readProofs reads the files of tokens and certificates.
func (c *Config) readProofs() (*proofs, error) {
	p := &proofs{}
	for _, path := range c.proofFiles() { // a read of a pipe may last for ever
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is a directory, pipe or device: give a file", path)
		}
	}
	if path := c.API.TokenFile; path != "" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--api-tokens: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		limited := &io.LimitedReader{R: f, N: maxTokenFile + 1}
		if p.tokens, err = httpapi.ReadTokens(limited); limited.N == 0 {
			err = fmt.Errorf("it has more than %d bytes: remove lines that are not needed", maxTokenFile)
		}
		if err != nil {
			return nil, fmt.Errorf("--api-tokens %s: %w", path, err)
		}
	}
	if c.TLS.Cert == "" {
		return p, nil
	}
	pair, err := workerproto.ReadPair(c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	// Without tickets each connection proves anew who its peer is.
	p.tls = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
	if pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("--tls-cert %s: the certificate has expired at %s: renew it", c.TLS.Cert, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	if c.TLS.ClientCA != "" {
		if p.authority, err = workerproto.ReadCA(c.TLS.ClientCA); err != nil {
			return nil, fmt.Errorf("--tls-client-ca: %w", err)
		}
		p.tls.ClientCAs, p.tls.ClientAuth = p.authority, tls.VerifyClientCertIfGiven
	}
	return p, nil
}

// loadProofs reads the files of tokens and certificates. From then on these are valid.
func (d *Daemon) loadProofs() error {
	d.listeners.versions = d.cfg.proofVersions()
	p, err := d.cfg.readProofs()
	if err != nil {
		return err
	}
	if p.tokens != nil && len(p.tokens) == 0 && d.listeners.visitors.current().tokens == nil { // at the start
		return fmt.Errorf("--api-tokens %s: it contains no token", d.cfg.API.TokenFile)
	}
	if info, err := os.Stat(d.cfg.API.TokenFile); err == nil && info.Mode().Perm()&0o022 != 0 {
		d.log.Warn("other users may change the token file and add a token of their own: set its mode to 0640 or 0600",
			zap.String("file", d.cfg.API.TokenFile), zap.String("mode", fmt.Sprintf("%04o", info.Mode().Perm())))
	}
	if closed := d.listeners.visitors.replace(p); closed > 0 {
		d.log.Info("connections are closed, because their token or certificate is not valid any more", zap.Int("connections", closed))
	}
	return nil
}

// proofCheck is the time between two checks whether the files of tokens and certificates have changed.
const proofCheck = time.Second

// reloading returns the service that reads the files of tokens and certificates again when one of them has changed, and after a signal. If
// a file is invalid or missing, the current tokens and certificates remain valid, so that a typing error locks no peer out. A token file
// without a line revokes all.
func (d *Daemon) reloading() background.Service {
	return background.Service{Name: "proofs", Step: func(context.Context, background.Now) (time.Duration, error) {
		used := d.listensOnTCP() && (d.cfg.API.TokenFile != "" || d.cfg.TLS.Cert != "")
		select {
		case <-d.cfg.Reload:
			if !used {
				d.log.Info("the signal to reload tokens and certificates is ignored: no such file is used")
			}
		default:
			used = used && d.listeners.versions != d.cfg.proofVersions()
		}
		if !used {
			return proofCheck, nil
		}
		if err := d.loadProofs(); err != nil {
			d.log.Error("a file of tokens or certificates is invalid: the current ones remain valid", zap.Error(err))
		} else {
			d.log.Info("tokens and certificates reloaded", zap.String("file", d.cfg.API.TokenFile),
				zap.Int("tokens", len(d.listeners.visitors.current().tokens)))
		}
		return proofCheck, nil
	}}
}

// proofFiles returns the files of tokens and certificates, and "" for those that are not used.
func (c *Config) proofFiles() []string {
	return []string{c.API.TokenFile, c.TLS.Cert, c.TLS.Key, c.TLS.ClientCA}
}

// proofVersions returns a text that changes with the files of tokens and certificates.
func (c *Config) proofVersions() string {
	var all strings.Builder
	for _, path := range c.proofFiles() {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintln(&all, path, info.ModTime().UnixNano(), info.Size(), info.Mode())
		}
	}
	return all.String()
}

// listensOnTCP reports whether workers or callers may connect over TCP.
func (d *Daemon) listensOnTCP() bool { return d.cfg.API.Listen != "" || d.cfg.WorkerListen != "" }
