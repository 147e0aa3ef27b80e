package workerproto

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func asNetError(err error, target *net.Error) bool { return errors.As(err, target) }

func TestAJobGoesToAWorkerAndItsResultComesBack(t *testing.T) {
	h := newRecorder()
	path := startServer(t, Limits{}, h, nil)
	c, err := DialAt(t.Context(), SocketAddress(path), &Credentials{}, &Hello{Worker: "w1", Slots: []Slot{{Types: []string{"pdf"}}}})
	require.NoError(t, err)

	s := await(t, h.opened)
	require.Equal(t, c.Session(), s.Nonce())
	require.True(t, s.Send(&Job{Execution: Execution{Job: 7, Attempt: 1}, Type: "pdf", Payload: []byte(`{"n":1}`)}))

	frames, err := c.Receive()
	require.NoError(t, err)
	require.Len(t, frames, 1)
	job := frames[0].(*Job)
	require.JSONEq(t, `{"n":1}`, string(job.Payload))
	require.True(t, c.Send(&Done{Execution: job.Execution, Result: []byte(`{"ok":true}`)}))
	require.Equal(t, `{"op":"done","job":7,"attempt":1,"session":"`+s.Nonce()+`","result":{"ok":true}}`, await(t, h.frames))

	require.NoError(t, c.Close())
	require.Equal(t, io.EOF, await(t, h.closed))
}
