package daemon

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// lobby is a listener whose visitors need a token, for a test.
type lobby struct {
	*visitors

	t        *testing.T
	gate     *gate
	registry prometheus.Gatherer
}

func newLobby(t *testing.T, most int) *lobby {
	t.Helper()
	m := newMetrics(zap.NewNop())
	v := newVisitors(m.visitors)
	v.most = most
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := v.gate(l, func(net.Conn, error) {})
	t.Cleanup(func() { _ = g.Close() })
	b := &lobby{v, t, g, m.registry}
	b.knows("a", "b")
	return b
}

// knows replaces the tokens.
func (b *lobby) knows(tokens ...string) (closed int) {
	var text bytes.Buffer
	for _, token := range tokens {
		fmt.Fprintf(&text, "holder-of-%s %x\n", token, sha256.Sum256([]byte(token)))
	}
	known, err := httpapi.ReadTokens(&text)
	require.NoError(b.t, err)
	return b.replace(&proofs{tokens: known})
}

// comes connects from an address of this host, and returns both ends.
func (b *lobby) comes(from string) (theirs, ours net.Conn) {
	b.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	theirs, err := dialer.DialContext(b.t.Context(), "tcp", b.gate.Addr().String())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = theirs.Close() })
	ours, err = b.gate.Accept()
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = ours.Close() })
	return theirs, ours
}

// requireOpen checks whether a connection is open.
func requireOpen(t *testing.T, open bool, ours, theirs net.Conn) {
	t.Helper()
	_, err := ours.Write([]byte("?"))
	if !open {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	_, err = theirs.Read(make([]byte, 1))
	require.NoError(t, err)
}

// Peers that prove nothing close only the connections of their own address. Peers with a token need no place.
func TestOldestStrangerOfTheLargestAddressMakesRoom(t *testing.T) {
	b := newLobby(t, 4)
	holder, ofHolder := b.comes("127.0.0.1")
	_, objection := b.identify(ofHolder, "a")
	require.Empty(t, objection)
	lonely, ofLonely := b.comes("127.0.0.3")
	var near, far []net.Conn
	for range 10 {
		theirs, ours := b.comes("127.0.0.1")
		near, far = append(near, ours), append(far, theirs)
	}
	require.EqualValues(t, 4, b.waiting.Load())
	require.InDelta(t, 7, gatherJobs(t, b.registry)["dispatcherd_tcp_refused_total strangers"], 0)
	for i := range near {
		requireOpen(t, i >= 7, near[i], far[i])
	}
	requireOpen(t, true, ofHolder, holder)
	requireOpen(t, true, ofLonely, lonely)
	who, objection := b.identify(near[9], "b")
	require.Empty(t, objection)
	require.Equal(t, "holder-of-b", who.Token)
	require.Equal(t, "127.0.0.1", who.Address)
	require.EqualValues(t, 3, b.waiting.Load())
	for _, ours := range append(near, ofLonely) {
		_ = ours.Close()
	}
	require.Zero(t, b.waiting.Load())
	require.Empty(t, b.strangers)
	require.Len(t, b.open, 1)
}

func TestUnknownTokenNamesNothingOfIt(t *testing.T) {
	b := newLobby(t, 4)
	_, ours := b.comes("127.0.0.1")
	for _, token := range []string{"", "wrong-4711", "a "} {
		_, objection := b.identify(ours, token)
		require.NotEmpty(t, objection)
		require.NotContains(t, objection, "4711")
		require.EqualValues(t, 1, b.waiting.Load(), "it remains a stranger")
	}
}

func TestRevokedTokenClosesItsConnectionsAlone(t *testing.T) {
	b := newLobby(t, 4)
	first, ofFirst := b.comes("127.0.0.1")
	second, ofSecond := b.comes("127.0.0.1")
	stranger, ofStranger := b.comes("127.0.0.1")
	for token, conn := range map[string]net.Conn{"a": ofFirst, "b": ofSecond} {
		_, objection := b.identify(conn, token)
		require.Empty(t, objection)
	}
	require.Zero(t, b.knows("a", "b", "c"))
	require.Equal(t, 1, b.knows("b", "c"))
	requireOpen(t, false, ofFirst, first)
	requireOpen(t, true, ofSecond, second)
	requireOpen(t, true, ofStranger, stranger)
	_, objection := b.identify(ofStranger, "a")
	require.Contains(t, objection, "the token is unknown")
}

// Tokens are revoked while peers show them. No connection remains open that became known by a token which is revoked in the end.
func TestTokenThatIsRevokedDuringItsCheckKeepsNoConnection(t *testing.T) {
	b := newLobby(t, 1000)
	for range 200 {
		b.knows("a", "b")
		var peers sync.WaitGroup
		for range 8 {
			_, ours := b.comes("127.0.0.1")
			peers.Go(func() { _, _ = b.identify(ours, "a") })
		}
		b.knows("b")
		peers.Wait()
		for c := range b.open {
			_, err := c.Write([]byte("?"))
			require.Equal(t, c.stranger, err == nil, "it is closed unless it is a stranger")
			_ = c.TCPConn.Close()
		}
		clear(b.open)
	}
}

func TestNetworkOfIPv6CountsAsOneAddress(t *testing.T) {
	at := func(ip string) string { return prefixOf(&net.TCPAddr{IP: net.ParseIP(ip)}).String() }
	require.Equal(t, "2001:db8::/64", at("2001:db8::1"))
	require.Equal(t, at("2001:db8::1"), at("2001:db8::ffff:1"))
	require.Equal(t, "10.0.0.1/32", at("10.0.0.1"))
	require.Equal(t, "10.0.0.1/32", at("::ffff:10.0.0.1"))
}
