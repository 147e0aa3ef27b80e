package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// maxStrangers bounds the connections over TCP whose peers have not proved who they are. Each takes up to 64 KiB. A worker or caller needs
// milliseconds for its proof. At the highest rate of connections of one address it has four seconds.
const maxStrangers = 4096

// visitors are the connections over TCP, and the proofs that their peers may give: tokens and certificates.
//
// A connection is a stranger until its peer has proved who it is. If there are too many strangers, the oldest one of the address with the
// most of them is closed. So an attacker from one address closes only its own connections, and peers with a proof need none of these
// places.
//
// A peer is known by a proof only while the files have not been replaced since its check began. So a connection whose proof is revoked is
// closed, whenever it came. Proofs are checked outside the mutex, because the hashes and signatures of one peer must not delay others.
type visitors struct {
	refused *prometheus.CounterVec // connections that are closed, by reason
	most    int                    // strangers

	mu        sync.Mutex
	proofs    *proofs
	open      map[*visitor]struct{}
	strangers map[netip.Prefix][]*visitor // the oldest first
	waiting   atomic.Int64                // strangers
}

// proofs are the contents of the files of settings about connections over TCP.
type proofs struct {
	tokens    httpapi.Tokens // nil: no token is known
	authority *x509.CertPool // of the certificates of peers; nil: none is known
	tls       *tls.Config    // nil: connections have no TLS
}

// needed reports whether a peer must prove who it is.
func (p *proofs) needed() bool { return p.tokens != nil || p.authority != nil }

// gated reports whether connections come through a gate.
func (p *proofs) gated() bool { return p.tls != nil || p.needed() }

// visitor is a connection over TCP.
type visitor struct {
	*net.TCPConn

	all       *visitors
	prefix    netip.Prefix   // of the address, for its share
	leave     func()         // gives back the processor of a handshake; nil = it has none
	authority *x509.CertPool // that has signed the certificate of the peer, if it has shown one
	stranger  bool
	proof     proof
}

// proof is what a peer has shown. It is empty if no proof was needed.
type proof struct {
	key    string // of the holder
	holder httpapi.Holder
	chain  []*x509.Certificate // nil = it is a token
}

func newVisitors(refused *prometheus.CounterVec) *visitors {
	return &visitors{
		most: maxStrangers, refused: refused, proofs: &proofs{}, open: map[*visitor]struct{}{}, strangers: map[netip.Prefix][]*visitor{},
	}
}

// current returns the proofs that are known.
func (v *visitors) current() *proofs {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.proofs
}

// enter adds a connection as a stranger.
func (v *visitors) enter(conn *net.TCPConn) *visitor {
	c := &visitor{TCPConn: conn, all: v, prefix: prefixOf(conn.RemoteAddr()), stranger: true}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open[c] = struct{}{}
	v.strangers[c.prefix] = append(v.strangers[c.prefix], c)
	if v.waiting.Add(1) > int64(v.most) {
		v.makeRoomLocked()
	}
	return c
}

// prefixOf returns whose share a connection counts for: that of its address, or of the network of 64 bits in IPv6.
func prefixOf(address net.Addr) netip.Prefix {
	ip := address.(*net.TCPAddr).AddrPort().Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.WithZone("").Prefix(bits) // fails only for wrong bits
	return prefix
}

// makeRoomLocked closes the oldest stranger of the address with the most strangers.
func (v *visitors) makeRoomLocked() {
	var largest []*visitor
	for _, of := range v.strangers { // order-free: any of the largest
		if len(of) > len(largest) {
			largest = of
		}
	}
	victim := largest[0]
	v.knownLocked(victim)
	v.refused.WithLabelValues("strangers").Inc()
	_ = victim.TCPConn.Close() // its goroutine notices the end
}

// knownLocked removes a connection from the strangers.
func (v *visitors) knownLocked(c *visitor) {
	if !c.stranger {
		return
	}
	c.stranger = false
	v.waiting.Add(-1)
	of := v.strangers[c.prefix]
	at := slices.Index(of, c)
	if v.strangers[c.prefix] = slices.Delete(of, at, at+1); len(of) == 1 {
		delete(v.strangers, c.prefix)
	}
}

// Read implements net.Conn. A handshake that waits for its peer needs no processor.
func (c *visitor) Read(b []byte) (int, error) {
	c.rest()
	return c.TCPConn.Read(b)
}

// rest gives back the processor of a handshake.
func (c *visitor) rest() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// Close implements net.Conn.
func (c *visitor) Close() error {
	c.all.mu.Lock()
	c.all.knownLocked(c)
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.TCPConn.Close()
}

// identify decides who a peer is, by its token, or else by its certificate. A peer that needs no proof has all rights. A Unix socket needs
// none.
func (v *visitors) identify(conn net.Conn, token string) (who httpapi.Visitor, objection string) {
	who = httpapi.Visitor{Peer: workerproto.PeerOf(conn), Rights: httpapi.AllRights}
	c, ok := workerproto.Unwrapped(conn).(*visitor)
	if !ok {
		return who, ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var shown proof
	for p := (*proofs)(nil); p != v.proofs; { // the files may be replaced during the check
		p = v.proofs
		trusted := c.authority == p.authority
		v.mu.Unlock()
		shown, objection = p.check(conn, token, trusted)
		v.mu.Lock()
	}
	if objection != "" {
		return who, objection
	}
	v.knownLocked(c)
	switch c.proof, c.authority = shown, v.proofs.authority; {
	case shown.chain != nil:
		who.Certificate = shown.holder.Name
	case shown.key != "":
		who.Token = shown.holder.Name
	default:
		return who, ""
	}
	who.Rights = shown.holder.Rights
	return who, ""
}

// check returns the proof of a peer: its token, or else its certificate. If the certificate is trusted, it is signed by the authority.
func (p *proofs) check(conn net.Conn, token string, trusted bool) (shown proof, objection string) {
	if secure, ok := conn.(*tls.Conn); ok && p.authority != nil {
		shown.chain = secure.ConnectionState().PeerCertificates
	}
	switch {
	case !p.needed():
		return proof{}, ""
	case token != "" && p.tokens != nil:
		shown.key, shown.chain = httpapi.KeyOf(token), nil
		objection = "the token is unknown: send one that this dispatcher knows, or add its SHA-256 to the file of --api-tokens"
	case len(shown.chain) > 0:
		name := nameIn(shown.chain[0])
		switch shown.key = httpapi.Certificate + name; {
		case name == "":
			return shown, "the certificate has no name: use one with a common name, or with an alternative name (URI or DNS)"
		case !trusted && !p.trusts(shown.chain):
			return shown, "the certificate is not valid any more: use one of the authority in --tls-client-ca of the dispatcher"
		}
		objection = "the certificate " + name + " has no line in the file of --api-tokens: add cert:" + name + " -, or cert:* - for all"
	case p.authority == nil:
		return shown, "a token is needed: send Authorization: Bearer and a token this dispatcher knows (a worker: --token-file)"
	case p.tokens == nil:
		return shown, "a certificate is needed: give one of the authority in --tls-client-ca of the dispatcher (--cert and --key; " +
			"of a caller: --api-cert and --api-key)"
	default:
		return shown, "a token this dispatcher knows is needed (--token-file), or a certificate of its --tls-client-ca (--cert and --key); " +
			"a caller gives --api-token-file, or --api-cert and --api-key"
	}
	var known bool
	if shown.holder, known = p.tokens.Holder(shown.key); known {
		objection = ""
	}
	return shown, objection
}

// nameIn returns the name of a certificate: its first URI, its first DNS name, or its common name.
func nameIn(cert *x509.Certificate) string {
	switch {
	case len(cert.URIs) > 0:
		return cert.URIs[0].String()
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	}
	return cert.Subject.CommonName
}

// replace replaces the proofs, and closes the connections whose proof is not valid any more. It returns how many these were.
func (v *visitors) replace(p *proofs) (closed int) {
	v.mu.Lock()
	v.proofs = p
	known := map[*visitor]proof{}
	for c := range v.open { // order-free: the connections are independent
		if !c.stranger {
			known[c] = c.proof
		}
	}
	v.mu.Unlock()
	trusted := map[string]bool{}  // by the certificate, which many connections may have
	for c, shown := range known { // order-free
		if !p.valid(shown, trusted) {
			closed++
			_ = c.TCPConn.Close() // its owner notices the end
		}
	}
	v.refused.WithLabelValues("revoked").Add(float64(closed))
	return closed
}

// valid reports whether a proof is still valid. trusted are the certificates that were verified before.
func (p *proofs) valid(shown proof, trusted map[string]bool) bool {
	if h, known := p.tokens.Holder(shown.key); p.needed() && (!known || h != shown.holder) {
		return false
	}
	if shown.chain == nil {
		return true
	}
	leaf := string(shown.chain[0].Raw)
	valid, verified := trusted[leaf]
	if !verified {
		valid = p.trusts(shown.chain)
		trusted[leaf] = valid
	}
	return valid
}

// trusts reports whether the authority has signed a certificate.
func (p *proofs) trusts(chain []*x509.Certificate) bool {
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: p.authority, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return p.authority != nil && err == nil
}
