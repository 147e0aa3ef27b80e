package effect

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Each pointer keeps its effect while the memory grows.
func TestPointersStayValidWhileTheMemoryGrows(t *testing.T) {
	var s Sends
	var sent []*Send
	for id := range dispatcherd.JobID(1000) {
		sent = append(sent, s.Add(Send{Job: id}))
	}
	for id, e := range sent {
		require.EqualValues(t, id, e.Job)
	}
}

// The array stays, and keeps no payload.
func TestResetKeepsTheArrayButNoPayload(t *testing.T) {
	var s Sends
	first := s.Add(Send{Job: 1, Delivery: contract.Delivery{Payload: []byte("payload")}})
	s.Reset()
	require.Empty(t, s)
	require.Nil(t, first.Payload)
	require.Same(t, first, s.Add(Send{Job: 2}))
}
