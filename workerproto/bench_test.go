package workerproto

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A job frame of about 300 bytes, as in the protocol document.
var benchJob = Job{
	Token:     "K3ZQ7X2ABCDEFGHJ-1njchs",
	Execution: Execution{Job: 123456789, Attempt: 2, Session: "9f86d081884c7d659a2feaa0c55ad015"},
	Slot:      12,
	Type:      "pdf.render",
	Timeout:   time.Minute,
	Age:       1500 * time.Millisecond,
	Payload: []byte(
		`{"customer":"ACME GmbH","document":"invoice-2026-11-0042","pages":[1,2,3,4],"locale":"de_AT","options":{"dpi":300,"colour":true}}`,
	),
}

var benchDone = Done{
	Execution: benchJob.Execution,
	Result: []byte(
		`{"file":"s3://bucket/invoice-2026-11-0042.pdf","bytes":182736,"pages":4,` +
			`"sha256":"2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae","warnings":[],"took_ms":812.25}`,
	),
}

func BenchmarkEncodeJob(b *testing.B) { benchEncode(b, &benchJob) }

func BenchmarkEncodeDone(b *testing.B) { benchEncode(b, &benchDone) }

func benchEncode(b *testing.B, f frame) {
	c := codec{out: make([]byte, 0, 1024)}
	b.ReportAllocs()
	for b.Loop() {
		c.out = c.out[:0]
		c.encode(f)
	}
	b.SetBytes(int64(len(c.out)))
}

func BenchmarkDecodeJob(b *testing.B) {
	line := Append(nil, &benchJob)
	d := NewDispatcherDecoder(false)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeDone(b *testing.B) {
	line := Append(nil, &benchDone)
	d := NewWorkerDecoder()
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(line); err != nil {
			b.Fatal(err)
		}
	}
}

// The same frame decoded by encoding/json, for comparison.
func BenchmarkDecodeDoneStdlib(b *testing.B) {
	line := Append(nil, &benchDone)
	b.ReportAllocs()
	for b.Loop() {
		var v struct {
			Op      string          `json:"op"`
			Job     int64           `json:"job"`
			Attempt int32           `json:"attempt"`
			Session string          `json:"session"`
			Result  json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			b.Fatal(err)
		}
	}
}

// doneSink counts done frames and reports when all have arrived.
type doneSink struct {
	NoopHandler
	want, got int
	all       chan struct{}
}

func (h *doneSink) Frames(_ *Session, frames []WorkerFrame) {
	h.got += len(frames)
	if h.got >= h.want {
		close(h.all)
	}
}

// NoopHandler accepts every worker and ignores its frames.
type NoopHandler struct{}

func (NoopHandler) Open(*Session, *Hello) error    { return nil }
func (NoopHandler) Frames(*Session, []WorkerFrame) {}
func (NoopHandler) Closed(_ *Session, _ error)     {}

// The capacity of one connection, including decoding and batching. The peer writes
// from a prepared buffer.
func BenchmarkServeDoneFrames(b *testing.B) {
	h := &doneSink{want: b.N, all: make(chan struct{})}
	path := startServer(b, Limits{}, h, nil)
	p := dial(b, path)
	done := benchDone
	done.Session = p.greet().Session
	const chunk = 100
	var block []byte
	for range chunk {
		block = Append(block, &done)
	}
	one := len(block) / chunk
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= chunk {
		_, err := p.conn.Write(block[:one*min(left, chunk)])
		require.NoError(b, err)
	}
	<-h.all
}
