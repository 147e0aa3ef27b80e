package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// authority is a certificate authority of a test.
type authority struct {
	t         *testing.T
	dir, name string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
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

// sign makes a certificate, and returns its files. The first one is that of the authority.
func (a *authority) sign(name string, change func(*x509.Certificate)) (cert, key string) {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(c)
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

// replaceFile replaces a file as a whole. Only its user may read it.
func replaceFile(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	return path
}

// tokenLine is the line of a token in the token file.
func tokenLine(name, token, role string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %x %s", name, sha256.Sum256([]byte(token)), role)) + "\n"
}

// secured is a dispatcher with TLS on both addresses.
type secured struct {
	*host

	w            *world
	ca           *authority
	cert, key    string // files
	workers, api string // addresses
}

// The tokens of a secured dispatcher are secrets, which no output contains.
const secret = "token-4711-"

// secure starts a dispatcher with TLS. The tokens secret+ROLE have their role, and secret+"all" has all rights.
func (w *world) secure(change func(*secured, *daemon.Config)) *secured {
	w.t.Helper()
	s := &secured{w: w, ca: newAuthority(w.t, w.dir, "ca")}
	s.cert, s.key = s.ca.sign("server", forLocalhost)
	cfg := w.config("d")
	cfg.WorkerListen, cfg.API.Listen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.TLS = daemon.TLSFiles{Cert: s.cert, Key: s.key}
	cfg.API.TokenFile = s.holders("worker", "read", "operate", "payload", "all")
	if change != nil {
		change(s, &cfg)
	}
	s.host = w.start(cfg)
	address := func(what string) string {
		said := regexp.MustCompile(`"msg":"` + what + `","address":"(127\.0\.0\.1:\d+)"`).FindStringSubmatch(s.log.text())
		require.NotNil(w.t, said, s.log.text())
		return said[1]
	}
	s.workers, s.api = address("workers on TCP"), address("API on TCP")
	w.t.Cleanup(func() { require.NotContains(w.t, s.log.text(), secret) })
	return s
}

// holders writes the file of tokens.
func (s *secured) holders(roles ...string) string {
	var lines strings.Builder
	for _, role := range roles {
		lines.WriteString(tokenLine("holder-of-"+role, secret+role, strings.TrimSuffix(role, "all")))
	}
	return replaceFile(s.w.t, filepath.Join(s.w.dir, "tokens"), lines.String())
}

// proofs returns credentials with the token of a role; "" = none.
func (s *secured) proofs(role string) workerproto.Credentials {
	c := workerproto.Credentials{CA: s.ca.file()}
	if role != "" {
		c.TokenFile = replaceFile(s.w.t, filepath.Join(s.w.dir, "token-of-"+role), secret+role+"\n")
	}
	return c
}

// join connects a worker. refusal is the error, which contains no secret.
func (s *secured) join(scheme, address string, c workerproto.Credentials) (conn *workerproto.Conn, refusal string) {
	s.w.t.Helper()
	list, err := workerproto.ParseAddresses(scheme + "://" + address)
	require.NoError(s.w.t, err)
	conn, err = workerproto.DialAt(s.w.t.Context(), list[0], &c, &workerproto.Hello{
		Worker: "w", Slots: []workerproto.Slot{{Types: []string{"x"}}},
	})
	if err != nil {
		require.NotContains(s.w.t, err.Error(), secret)
		return nil, err.Error()
	}
	s.w.t.Cleanup(conn.Abort)
	return conn, ""
}

// ends waits for the end of a worker's connection.
func ends(t *testing.T, conn *workerproto.Conn) {
	t.Helper()
	for {
		if _, err := conn.Receive(); err != nil {
			return
		}
	}
}

// caller returns a client over TLS.
func (s *secured) caller(role string) *client.Client {
	s.w.t.Helper()
	c, err := client.New(client.Options{Dispatcher: "tls://" + s.api, Credentials: s.proofs(role)})
	require.NoError(s.w.t, err)
	s.w.t.Cleanup(c.Close)
	return c
}

// A worker on another host needs the address, a token and the authority.
func TestWorkerOverTLSDoesJobs(t *testing.T) {
	w := newWorld(t)
	s := w.secure(func(_ *secured, cfg *daemon.Config) {
		require.NoError(t, cfg.Allow.Set("x=token:holder-of-worker;y=token:other"))
	})
	c := w.program("worker", "run", "--dispatcher", "tls://"+s.workers, "--token-file", s.proofs("worker").TokenFile, "--ca", s.ca.file(),
		"--types", "x", "--", "sh", "-c", "cat")
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.Contains(t, c.errors.text(), "connected to d on tls://"+s.workers)
	require.Contains(t, s.log.text(), `"user":"holder-of-worker","address":"127.0.0.1"`)

	anna := s.caller("all")
	answer, err := anna.Do(t.Context(), client.Request{Type: "x", Payload: 7}) // a frame
	require.NoError(t, err)
	require.JSONEq(t, "7", string(answer))
	_, err = client.Call[any](t.Context(), anna, "GET", "/v1/slots", nil)
	require.NoError(t, err)

	other := w.program("worker", "run", "--dispatcher", "tls://"+s.workers, "--token-file", s.proofs("worker").TokenFile, "--ca", s.ca.file(),
		"--types", "y", "--", "sh", "-c", "cat")
	other.ends(t, exit.Conflict)
	require.Contains(t, other.errors.text(), `token:holder-of-worker may not serve type "y": only other users may`)
	require.Contains(t, other.errors.text(), `add token:holder-of-worker to --allow`)
}

// Each refusal says on both sides what is wrong and what to do. A session that was open before continues.
func TestRefusedConnectionsSayWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	var other *authority
	s := w.secure(func(s *secured, cfg *daemon.Config) { cfg.TLS.ClientCA = s.ca.file() })
	other = newAuthority(t, w.dir, "other")
	present, refusal := s.join("tls", s.workers, s.proofs("worker"))
	require.Empty(t, refusal)
	jobs := make(chan *workerproto.Job, 1)
	go func() { // answers pings
		for {
			frames, err := present.Receive()
			if err != nil {
				close(jobs)
				return
			}
			for _, f := range frames {
				if job, ok := f.(*workerproto.Job); ok {
					jobs <- job
				}
			}
		}
	}()
	with := func(role string, change func(*workerproto.Credentials)) workerproto.Credentials {
		c := s.proofs(role)
		if change != nil {
			change(&c)
		}
		return c
	}
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	public := filepath.Join(w.dir, "public")
	require.NoError(t, os.WriteFile(public, []byte(secret+"all"), 0o600))
	require.NoError(t, os.Chmod(public, 0o644))
	for _, c := range []struct {
		name, scheme, address string
		proofs                workerproto.Credentials
		says, log             string
	}{
		{"unknown token", "tls", s.workers, with("nobody", nil), "refused: the token is unknown: send one that this dispatcher knows",
			`"msg":"a worker over TCP is refused","address":"127.0.0.1"`},
		{"no token", "tls", s.workers, with("", nil), "refused: a token this dispatcher knows is needed (--token-file), or a certificate", ""},
		{"role", "tls", s.workers, with("read", nil),
			"token:holder-of-read lacks the role worker, which a worker needs: give it the role in --api-tokens", ""},
		{"authority", "tls", s.workers, with("worker", func(c *workerproto.Credentials) { c.CA = other.file() }),
			"the dispatcher's certificate is not signed by an authority in --ca " + other.file(), `"msg":"a TLS handshake failed"`},
		{"no authority", "tls", s.workers, with("worker", func(c *workerproto.Credentials) { c.CA = "" }),
			"the system does not know who signed the dispatcher's certificate: give the file of its authority as --ca", "bad certificate"},
		{"name", "tls", strings.Replace(s.workers, "127.0.0.1", "127.0.0.2", 1), with("worker", nil), "connection refused", ""},
		{"plain to TLS", "tcp", s.workers, with("worker", nil), "the peer does not use TLS: connect with tls://",
			`"reason":"the peer does not use TLS`},
		{"wrong listener", "tls", s.api, with("worker", nil), "this is a listener for another protocol: workers connect to --worker-listen", ""},
		{"expired certificate", "tls", s.workers, with("", func(c *workerproto.Credentials) { c.Cert, c.Key = s.ca.sign("old", expired) }),
			"the dispatcher refuses this certificate", "certificate has expired"},
		{"certificate of another authority", "tls", s.workers, with("", func(c *workerproto.Credentials) {
			c.Cert, c.Key = other.sign("foreign", func(*x509.Certificate) {})
		}), "a certificate of its --tls-client-ca (--cert and --key)", ""}, // crypto/tls does not send it
		{"public token", "tls", s.workers, with("", func(c *workerproto.Credentials) { c.TokenFile = public }),
			"has mode 0644, so other users may read or change it: set its mode to 0600", ""},
		{"missing file", "tls", s.workers, with("", func(c *workerproto.Credentials) { c.TokenFile = public + "-not" }), "no such file", ""},
	} {
		_, refusal := s.join(c.scheme, c.address, c.proofs)
		require.Contains(t, refusal, c.says, c.name)
		require.NotContains(t, refusal, "\n", c.name)
		eventually(t, func() bool { return strings.Contains(s.log.text(), c.log) }, func() string { return c.name + ": " + s.log.text() })
	}
	id := w.insert("x", work{})
	job := <-jobs
	require.NotNil(t, job)
	require.True(t, present.Send(&workerproto.Done{Execution: job.Execution}))
	w.await(id, dispatcherd.Done)
}

// The certificate of a dispatcher may be for other names, or may have expired.
func TestUnusableCertificateOfADispatcherIsExplained(t *testing.T) {
	w := newWorld(t)
	s := w.secure(nil)
	for text, change := range map[string]func(*x509.Certificate){
		"the dispatcher's certificate is for jobs.example: connect with one of these names": func(c *x509.Certificate) {
			c.DNSNames = []string{"jobs.example"}
		},
		"the dispatcher's certificate is not valid now": func(c *x509.Certificate) {
			forLocalhost(c)
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		},
	} {
		s.ca.sign("server", change)
		eventually(t, func() bool {
			_, refusal := s.join("tls", s.workers, s.proofs("worker"))
			return strings.Contains(refusal, text)
		}, s.log.text)
	}
	s.ca.sign("server", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	eventually(t, func() bool { return strings.Contains(s.log.text(), "the certificate has expired at") }, s.log.text)
	s.ca.sign("server", forLocalhost)
	eventually(t, func() bool {
		conn, _ := s.join("tls", s.workers, s.proofs("worker"))
		return conn != nil
	}, s.log.text)
}

// A token is replaced: for a while both tokens are valid. Then the old one is revoked, which ends its sessions and streams alone.
func TestRevokedTokenEndsItsSessionsAndStreams(t *testing.T) {
	w := newWorld(t)
	s := w.secure(nil)
	old, _ := s.join("tls", s.workers, s.proofs("worker"))
	stays, _ := s.join("tls", s.workers, s.proofs("all"))
	require.NotNil(t, old)
	require.NotNil(t, stays)
	revoked, kept := s.caller("payload"), s.caller("all")
	id := w.insert("nothing", work{})
	path := fmt.Sprintf("/v1/jobs/%d/events", id)
	stream, err := revoked.Send(t.Context(), "GET", path, nil, nil)
	require.NoError(t, err)
	defer stream.Body.Close()
	other, err := kept.Send(t.Context(), "GET", path, nil, nil)
	require.NoError(t, err)
	defer other.Body.Close()
	waits := make(chan error, 1)
	go func() {
		_, err := s.caller("operate").Do(t.Context(), client.Request{Type: "never", Timeout: time.Minute, WaitForWorker: time.Minute}) // a frame
		waits <- err
	}()
	eventually(t, func() bool { return s.gauges().Requests == 1 }, s.log.text)

	replaceFile(t, s.cfg.API.TokenFile, tokenLine("holder-of-all", secret+"all", "")+tokenLine("holder-of-worker", secret+"new", "worker"))
	ends(t, old)
	for range 100 { // the events that were sent before
		if _, err = stream.Body.Read(make([]byte, 4096)); err != nil {
			break
		}
	}
	require.Error(t, err)
	require.Error(t, <-waits)
	_, refusal := s.join("tls", s.workers, s.proofs("worker"))
	require.Contains(t, refusal, "the token is unknown")
	conn, refusal := s.join("tls", s.workers, s.proofs("new"))
	require.Empty(t, refusal)
	require.NotNil(t, conn)
	_, err = kept.Cancel(t.Context(), id)
	require.NoError(t, err, "the other caller's connection is open")
	eventually(t, func() bool { return len(s.slots()) == 2 }, s.log.text)
}

// A certificate is an identity: its URI, its DNS name, or its common name.
func TestCertificatesAreIdentities(t *testing.T) {
	w := newWorld(t)
	s := w.secure(func(s *secured, cfg *daemon.Config) {
		cfg.TLS.ClientCA, cfg.API.TokenFile = s.ca.file(), ""
		require.NoError(t, cfg.Allow.Set("x=cert:gpu-1,cert:spiffe://cluster/pdf"))
	})
	joins := func(name string, change func(*x509.Certificate)) (*workerproto.Conn, string) {
		c := s.proofs("")
		c.Cert, c.Key = s.ca.sign(name, change)
		return s.join("tls", s.workers, c)
	}
	first, refusal := joins("gpu-1", func(*x509.Certificate) {})
	require.Empty(t, refusal)
	_, refusal = joins("by-uri", func(c *x509.Certificate) {
		u, err := url.Parse("spiffe://cluster/pdf")
		require.NoError(t, err)
		c.URIs = []*url.URL{u}
	})
	require.Empty(t, refusal)
	_, refusal = joins("gpu-2", func(*x509.Certificate) {})
	require.Contains(t, refusal, `cert:gpu-2 may not serve type "x"`)
	_, refusal = s.join("tls", s.workers, s.proofs(""))
	require.Contains(t, refusal, "a certificate is needed: give one of the authority in --tls-client-ca")

	newAuthority(t, w.dir, "ca") // replaces the authority of clients
	ends(t, first)
}

// A certificate with the role worker loses it with its line, and gets no other rights by that, although the file has tokens only then.
func TestLastLineOfACertificateRevokesIt(t *testing.T) {
	w := newWorld(t)
	s := w.secure(func(s *secured, cfg *daemon.Config) { cfg.TLS.ClientCA = s.ca.file() })
	c := s.proofs("")
	c.Cert, c.Key = s.ca.sign("gpu-1", func(*x509.Certificate) {})
	lines := tokenLine("holder-of-all", secret+"all", "")
	_, refusal := s.join("tls", s.workers, c)
	require.Contains(t, refusal, "the certificate gpu-1 has no line in the file of --api-tokens: add cert:gpu-1 -, or cert:* - for all")
	joins := func(line string) (conn *workerproto.Conn) {
		replaceFile(t, s.cfg.API.TokenFile, lines+line)
		eventually(t, func() bool { conn, refusal = s.join("tls", s.workers, c); return conn != nil }, func() string { return refusal })
		return conn
	}
	for _, line := range []string{"cert:gpu-1 - worker\n", "cert:* - worker\n"} {
		conn := joins(line)
		replaceFile(t, s.cfg.API.TokenFile, lines)
		ends(t, conn)
		_, refusal = s.join("tls", s.workers, c)
		require.Contains(t, refusal, "the certificate gpu-1 has no line")
		caller, err := client.New(client.Options{Dispatcher: "tls://" + s.api, Credentials: c})
		require.NoError(t, err)
		_, err = client.Call[any](t.Context(), caller, "GET", "/v1/slots", nil)
		require.ErrorContains(t, err, "the certificate gpu-1 has no line")
		caller.Close()
	}
}

// The authority is replaced after the handshake of a worker and before its hello.
func TestCertificateOfAFormerAuthorityIsRefusedAfterItsHandshake(t *testing.T) {
	w := newWorld(t)
	s := w.secure(func(s *secured, cfg *daemon.Config) {
		cfg.TLS.ClientCA, cfg.API.TokenFile, cfg.Workers.HelloTimeout = s.ca.file(), "", time.Minute
	})
	pair, err := tls.LoadX509KeyPair(s.ca.sign("gpu-1", func(*x509.Certificate) {}))
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	trusted.AddCert(s.ca.cert)
	conn, err := tls.Dial("tcp", s.workers, &tls.Config{
		RootCAs: trusted, Certificates: []tls.Certificate{pair}, NextProtos: []string{workerproto.WorkerProtocol},
	})
	require.NoError(t, err)
	defer conn.Close()
	newAuthority(t, w.dir, "ca")
	eventually(t, func() bool { return strings.Contains(s.log.text(), "tokens and certificates reloaded") }, s.log.text)
	_, err = io.WriteString(conn, `{"op":"hello","versions":[1,1],"worker":"w","slots":[{"slot":0,"types":["x"]}]}`+"\n")
	require.NoError(t, err)
	text, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(text), "the certificate is not valid any more: use one of the authority in --tls-client-ca")
}

// The roles of tokens restrict calls.
func TestRolesOfTokensRestrictCalls(t *testing.T) {
	w := newWorld(t)
	s := w.secure(nil)
	id := w.insert("x", work{})
	const quoted = "quoted-4712"
	w.exec(`UPDATE dispatcherd.jobs SET errors = '[{"error": "quoted-4712"}]' WHERE id = $1`, id)
	flow, err := client.Call[contract.InsertedFlow](t.Context(), s.caller("all"), "POST", "/v1/flows",
		json.RawMessage(`{"nodes": [{"name": "n", "type": "x"}]}`))
	require.NoError(t, err)
	w.exec(`UPDATE dispatcherd.jobs SET errors = '[{"error": "quoted-4712"}]' WHERE id = $1`, flow.Nodes["n"])
	job := fmt.Sprintf("/v1/jobs/%d", id)
	for role, allowed := range map[string]string{
		"worker": "", "read": "get", "payload": "get reveal", "operate": "get post", "all": "get reveal post",
	} {
		c := s.caller(role)
		call := func(method, path string, body any) (map[string]any, error) {
			return client.Call[map[string]any](t.Context(), c, method, path, body)
		}
		check := func(what string, err error) {
			t.Helper()
			if strings.Contains(allowed, what) {
				require.NoError(t, err, role)
				return
			}
			require.ErrorContains(t, err, "token:holder-of-"+role+" lacks the role", role)
		}
		row, err := call("GET", job, nil)
		check("get", err)
		if err == nil {
			require.Equal(t, strings.Contains(allowed, "reveal"), row["payload"] != nil, role)
		}
		for _, path := range []string{job, job + "/why", "/v1/jobs", fmt.Sprintf("/v1/flows/%d", flow.ID)} {
			answer, err := call("GET", path, nil)
			check("get", err)
			require.Equal(t, strings.Contains(allowed, "reveal"), strings.Contains(fmt.Sprint(answer), quoted), "%s: %s", role, path)
		}
		_, err = call("GET", "/v1/jobs?error="+quoted, nil) // its answer would tell the text
		check("reveal", err)
		_, err = call("POST", "/v1/jobs/cancel?dry_run=true&error="+quoted, nil)
		check("reveal post", err)
		_, err = call("POST", "/v1/jobs/retry?dry_run=true&error="+quoted, nil)
		check("reveal post", err)
		_, err = call("POST", "/v1/jobs", map[string]any{"type": "y"})
		check("post", err)
		_, err = c.Do(t.Context(), client.Request{Type: "y", Timeout: time.Millisecond})
		if !strings.Contains(allowed, "post") {
			require.ErrorContains(t, err, "lacks the role operate", role)
		}
		res, err := c.Send(t.Context(), "GET", "/v1/schedules/none", nil, nil)
		if err == nil {
			_ = res.Body.Close()
		}
		if strings.Contains(allowed, "reveal") {
			require.ErrorContains(t, err, "none", role)
		} else {
			require.ErrorContains(t, err, "lacks the role payload", role)
		}
	}
	anonymous, err := client.New(client.Options{Dispatcher: "tls://" + s.api, Credentials: s.proofs("")})
	require.NoError(t, err)
	defer anonymous.Close()
	for path, open := range map[string]bool{"/livez": true, "/readyz": true, "/metrics": false, "/v1/slots": false} {
		res, err := anonymous.Send(t.Context(), "GET", path, nil, nil)
		require.Equal(t, open, err == nil, path)
		if err == nil {
			_ = res.Body.Close()
		}
	}
}

// Thousands of connections from one address begin a handshake and do not end it. Workers at another address connect and do jobs meanwhile.
func TestUnfinishedHandshakesDoNotExcludeWorkers(t *testing.T) {
	w := newWorld(t)
	s := w.secure(nil)
	attacker := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 3000 {
		conn, err := attacker.DialContext(t.Context(), "tcp", s.workers)
		require.NoError(t, err)
		defer conn.Close()
		_, _ = conn.Write([]byte{0x16, 3, 1, 2, 0, 1}) // the dispatcher may have closed it
	}
	began := time.Now()
	for range 20 {
		conn, refusal := s.join("tls", s.workers, s.proofs("worker"))
		require.Empty(t, refusal)
		go func() {
			for {
				frames, err := conn.Receive()
				if err != nil {
					return
				}
				for _, f := range frames {
					if job, ok := f.(*workerproto.Job); ok {
						conn.Send(&workerproto.Done{Execution: job.Execution})
					}
				}
			}
		}()
	}
	require.Less(t, time.Since(began), 5*time.Second, "the handshakes of the attacker end after 5 s, and this must not be needed")
	for range 40 {
		w.insert("x", work{})
	}
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 40})
}

// Without TLS and proofs, connections over TCP count from their begin. So peers that say nothing cannot use up the descriptors.
func TestSilentPeersOnPlainTCPAreBounded(t *testing.T) {
	w := newWorld(t)
	plain := w.config("plain")
	plain.WorkerListen, plain.Workers.MaxConnections, plain.Workers.HelloTimeout = "127.0.0.1:0", 16, time.Minute
	h := w.start(plain)
	address := regexp.MustCompile(`"msg":"workers on TCP","address":"(127\.0\.0\.1:\d+)"`).FindStringSubmatch(h.log.text())[1]
	var last net.Conn
	for range 15 { // one user may have seven eighths
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		last = conn
	}
	require.NoError(t, last.SetReadDeadline(time.Now().Add(30*time.Second)))
	text, err := io.ReadAll(last)
	require.NoError(t, err)
	require.Contains(t, string(text), `"code":"too_many_connections"`)
}

// A listener for workers that is given as the API is named as such, and the reverse. So is a listener without TLS.
func TestListenersOfAnotherKindAreNamed(t *testing.T) {
	w := newWorld(t)
	s := w.secure(nil)
	plain := w.config("plain")
	plain.WorkerListen, plain.API.Listen = "127.0.0.1:0", "127.0.0.1:0"
	other := w.start(plain)
	address := func(what string) string {
		return regexp.MustCompile(`"msg":"` + what + `","address":"(127\.0\.0\.1:\d+)"`).FindStringSubmatch(other.log.text())[1]
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{"it is probably the listener for workers: give the API of the dispatcher", []string{"job", "list", "--api-socket", s.cfg.WorkerSocket}},
		{"workers connect to --worker-listen, and callers to --api-listen",
			[]string{"job", "list", "--api", "https://" + s.workers, "--api-ca", s.ca.file()}},
		{"the dispatcher's certificate is not signed by an authority in --api-ca",
			[]string{"job", "list", "--api", "https://" + s.api, "--api-ca", newAuthority(t, w.dir, "o").file()}},
		{"A valid bearer token is needed", []string{"job", "list", "--api", "https://" + s.api, "--api-ca", s.ca.file()}},
		{"the listener does not use TLS", []string{"job", "list", "--api", "https://" + address("API on TCP"), "--api-ca", s.ca.file()}},
		{"the peer does not use TLS", []string{"job", "list", "--api", "http://" + s.api}},
		{"this is the API socket, and the hello is that of a worker",
			[]string{"worker", "run", "--worker-socket", s.cfg.APISocket, "--types", "x", "--", "true"}},
	} {
		p := w.program(c.args...)
		<-p.ended
		require.Equal(t, 1, strings.Count(p.errors.text(), c.says), "%s: %s", c.args, p.errors.text())
		require.LessOrEqual(t, strings.Count(p.errors.text(), "\n"), 4, p.errors.text())
	}
	_, refusal := s.join("tls", address("workers on TCP"), s.proofs("worker"))
	require.Contains(t, refusal, "the listener does not use TLS: give the dispatcher --tls-cert and --tls-key, or use tcp://")
	conn, refusal := s.join("tcp", address("workers on TCP"), workerproto.Credentials{})
	require.Empty(t, refusal, "on loopback")
	require.NotNil(t, conn)
	inUse := w.program("serve", "--database-url", w.dsn, "--worker-socket", filepath.Join(w.dir, "x.sock"), "--api-socket",
		filepath.Join(w.dir, "y.sock"), "--worker-listen", address("workers on TCP"))
	inUse.ends(t, exit.Conflict)
	require.Contains(t, inUse.errors.text(), "--worker-listen "+address("workers on TCP")+": another program listens there")
}
