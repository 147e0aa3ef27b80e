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
// Proofs are checked, and proofs are replaced, under one mutex. So a connection whose proof is revoked is closed, whenever it came.
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
	tokens    *httpapi.Tokens // nil: no token is known
	authority *x509.CertPool  // of the certificates of peers; nil: none is known
	tls       *tls.Config     // nil: connections have no TLS
}

// needed reports whether a peer must prove who it is.
func (p *proofs) needed() bool { return p.tokens != nil || p.authority != nil }

// gated reports whether connections come through a gate.
func (p *proofs) gated() bool { return p.tls != nil || p.needed() }

// visitor is a connection over TCP.
type visitor struct {
	*net.TCPConn

	all      *visitors
	prefix   netip.Prefix // of the address, for its share
	leave    func()       // gives back the processor of a handshake; nil = it has none
	stranger bool
	holder   httpapi.Holder
	chain    []*x509.Certificate // with which the peer has proved who it is
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
	if !v.proofs.needed() {
		v.knownLocked(c)
		return who, ""
	}
	var chain []*x509.Certificate
	if secure, ok := conn.(*tls.Conn); ok && v.proofs.authority != nil {
		chain = secure.ConnectionState().PeerCertificates
	}
	holder, objection := v.proofs.holder(token, chain)
	if objection != "" {
		return who, objection
	}
	if c.holder, c.chain = holder, nil; token != "" && v.proofs.tokens != nil {
		who.Token = holder.Name
	} else {
		c.chain, who.Certificate = chain, holder.Name
	}
	v.knownLocked(c)
	who.Rights = holder.Rights
	return who, ""
}

// holder returns who holds a token or a certificate, which crypto/tls has verified. At least one of them is known.
func (p *proofs) holder(token string, chain []*x509.Certificate) (h httpapi.Holder, objection string) {
	switch {
	case token != "" && p.tokens != nil:
		h, known := p.tokens.Holder(token)
		if !known {
			return h, "the token is unknown: send one that this dispatcher knows, or add its SHA-256 to the file of --api-tokens"
		}
		return h, ""
	case len(chain) > 0:
		h.Name = nameIn(chain[0])
		if h.Name == "" {
			return h, "the certificate has no name: use one with a common name, or with an alternative name (URI or DNS)"
		}
		var listed bool
		if h.Rights, listed = p.tokens.Certificate(h.Name); !listed {
			return h, "the certificate " + h.Name + " has no line in the file of --api-tokens: add cert:" + h.Name + " -, or cert:* - for all"
		}
		return h, ""
	case p.authority == nil:
		return h, "a token is needed: send Authorization: Bearer and a token this dispatcher knows (a worker: --token-file)"
	case p.tokens == nil:
		return h, "a certificate is needed: give one of the authority in --tls-client-ca of the dispatcher (--cert and --key)"
	}
	return h, "a token this dispatcher knows is needed (--token-file), or a certificate of its --tls-client-ca (--cert and --key)"
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
	defer v.mu.Unlock()
	v.proofs = p
	for c := range v.open { // order-free: the connections are independent
		if !c.stranger && !p.valid(c) {
			closed++
			_ = c.TCPConn.Close() // its owner notices the end
		}
	}
	v.refused.WithLabelValues("revoked").Add(float64(closed))
	return closed
}

// valid reports whether the proof of a connection is still valid.
func (p *proofs) valid(c *visitor) bool {
	if c.chain == nil {
		return !p.needed() || p.tokens != nil && p.tokens.Has(c.holder)
	}
	rights, listed := p.tokens.Certificate(c.holder.Name)
	if !listed || rights != c.holder.Rights || p.authority == nil {
		return false
	}
	between := x509.NewCertPool()
	for _, cert := range c.chain[1:] {
		between.AddCert(cert)
	}
	_, err := c.chain[0].Verify(x509.VerifyOptions{
		Roots: p.authority, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}
