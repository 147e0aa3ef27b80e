package daemon

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// offering takes the fingerprint of one nonce as each worker that connects would offer it.
type offering struct{ seen chan contract.Fingerprint }

func (o offering) Open(s *workerproto.Session, _ *workerproto.Hello) error {
	o.seen <- fingerprintOf(s, "9f86d081884c7d659a2feaa0c55ad015")
	return nil
}
func (offering) Frames(*workerproto.Session, []workerproto.WorkerFrame) {}
func (offering) Closed(*workerproto.Session, error)                     {}

// A remote worker that presents the nonce of another one, which has another token, offers something that no row records.
func TestResumeOfferOfARemoteWorkerIsBoundToItsToken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	o := offering{make(chan contract.Fingerprint, 1)}
	identify := func(_ net.Conn, token string) (workerproto.Peer, string) {
		return workerproto.Peer{UID: -1, Token: token}, ""
	}
	go func() { done <- workerproto.Serve(ctx, l, workerproto.Limits{Identify: identify}, o, nil) }()
	offer := func(token string) contract.Fingerprint {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		c, err := workerproto.Connect(t.Context(), conn, &workerproto.Hello{Worker: "w", Token: token})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		return <-o.seen
	}
	mine := offer("render")
	require.Equal(t, mine, offer("render"), "a token may be rotated: its name counts")
	require.NotEqual(t, mine, offer("intruder"))
	cancel()
	require.NoError(t, <-done)
}
