package effect

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Each pointer keeps its effect while the buffer grows.
func TestPointersStayValidWhileABufferGrows(t *testing.T) {
	var m Memory
	var started []*Started
	for id := range dispatcherd.JobID(1000) {
		started = append(started, m.Started.Add(Started{Job: id}))
	}
	for id, e := range started {
		require.EqualValues(t, id, e.Job)
	}
}

// A reset buffer keeps its array, and the array keeps no payload.
func TestResetKeepsTheArrayButNoPayload(t *testing.T) {
	var m Memory
	first := m.Send.Add(Send{Job: 1, Delivery: contract.Delivery{Payload: []byte("payload")}})
	m.Reset()
	require.Nil(t, first.Payload)
	require.Same(t, first, m.Send.Add(Send{Job: 2}))
}

// A buffer that Reset forgets would grow without a bound.
func TestResetEmptiesEveryBuffer(t *testing.T) {
	var m Memory
	buffers := reflect.ValueOf(&m).Elem()
	for _, b := range buffers.Fields() {
		b.Set(reflect.MakeSlice(b.Type(), 3, 3))
	}
	m.Reset()
	for field, b := range buffers.Fields() {
		require.Zero(t, b.Len(), field.Name)
	}
}
