package journal

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor"
)

// fileOf is a small recording.
func fileOf(t testing.TB, texts ...Text) []byte {
	r := NewRecorder("d", MinBytes)
	newMill(20, 3, r)
	var b bytes.Buffer
	require.NoError(t, Write(&b, texts, r))
	return b.Bytes()
}

func TestTextsGoWithARecording(t *testing.T) {
	f, err := Read(bytes.NewReader(fileOf(t, Text{"version", []byte("v1")}, Text{"metrics", nil})))
	require.NoError(t, err)
	text, ok := f.Text("version")
	require.True(t, ok)
	require.Equal(t, "v1", string(text))
	_, ok = f.Text("payloads")
	require.False(t, ok)
	require.Len(t, f.Segments, 1)
	require.Equal(t, "d", f.Segments[0].Name)
}

func TestASomethingElseIsNoJournal(t *testing.T) {
	for _, text := range []string{"", "DSPJRNL", "job_id,arrival_seconds,type\n"} {
		_, err := Read(bytes.NewReader([]byte(text)))
		require.ErrorIs(t, err, ErrNoJournal, "%q", text)
	}
}

// Wherever a file is cut off, or a byte of it is wrong, that is said.
func TestACutOrDamagedFileIsNamedSo(t *testing.T) {
	whole := fileOf(t)
	const trailer = 16 // more than the compressor writes behind the last record
	for n := len(magic) + 12; n < len(whole)-trailer; n += 1 + n/20 {
		_, err := Read(bytes.NewReader(whole[:n]))
		require.ErrorIs(t, err, ErrCut, "after %d of %d bytes", n, len(whole))
		wrong := bytes.Clone(whole)
		wrong[n] ^= 0x10
		if _, err := Read(bytes.NewReader(wrong)); err != nil {
			require.True(t, errors.Is(err, ErrDamaged) || errors.Is(err, ErrCut), "byte %d: %v", n, err)
		}
	}
	_, err := Read(io.MultiReader(bytes.NewReader(whole[:40]), &brokenReader{}))
	require.ErrorContains(t, err, "the disk is gone")
}

type brokenReader struct{}

func (*brokenReader) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

func TestAnotherVersionsFileIsNotReplayed(t *testing.T) {
	whole := fileOf(t)
	whole[len(magic)] = 9
	_, err := Read(bytes.NewReader(whole))
	require.ErrorIs(t, err, ErrSchema)
	require.ErrorContains(t, err, "version 9")
	whole[len(magic)] = version
	whole[len(magic)+4] ^= 1
	f, err := Read(bytes.NewReader(whole))
	require.NoError(t, err, "its texts can be read")
	require.ErrorIs(t, f.Replay(func(*Step) error { return nil }), ErrSchema)
}

// The first step whose effects are not those of then is found.
func TestADifferenceIsFound(t *testing.T) {
	f, err := Read(bytes.NewReader(fileOf(t)))
	require.NoError(t, err)
	s := &f.Segments[0]
	at, n := 0, 1
	for ; n < 3; n++ {
		at += int(binary.LittleEndian.Uint32(s.records[at:]))
	}
	s.records[at+atHash] ^= 1
	require.NoError(t, f.Replay(func(s *Step) error {
		require.Equal(t, s.Number == 3, s.Differs(), "step %d", s.Number)
		return nil
	}))
}

func TestVisitorsEndAReplay(t *testing.T) {
	f, err := Read(bytes.NewReader(fileOf(t)))
	require.NoError(t, err)
	enough := errors.New("enough")
	n := 0
	require.ErrorIs(t, f.Replay(func(*Step) error { n++; return enough }), enough)
	require.Equal(t, 1, n)
}

// A state or an event that makes the core break down is an error of the file.
func TestACoreThatBreaksDownIsReported(t *testing.T) {
	f, err := Read(bytes.NewReader(fileOf(t)))
	require.NoError(t, err)
	s := &f.Segments[0]
	w := files.codec.NewWriter()
	var ev actor.Event = actor.Together{Events: []actor.Event{nil}}
	together := slices.IndexFunc(files.kinds, func(k kind) bool { return k.name == "together" })
	rec := append(make([]byte, recordHead), files.kinds[together].writer()(w, nil, ev)...)
	sealEvent(rec, together, 0)
	s.records = rec
	err = f.Replay(func(*Step) error { return nil })
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, "breaks down")
}

// sectionsOf unpacks a file, so that the fuzzer meets what is behind the
// compression.
func sectionsOf(t testing.TB, whole []byte) []byte {
	unzip, err := gzip.NewReader(bytes.NewReader(whole[len(magic)+12:]))
	require.NoError(t, err)
	content, err := io.ReadAll(unzip)
	require.NoError(t, err)
	return content
}

// tiny is a recording of a core with one slot.
func tiny(t testing.TB) []byte {
	r := NewRecorder("d", Unbounded)
	m := newMill(1, 1, nil)
	m.journal = r
	m.step(actor.Drained{})
	m.turn(1)
	var b bytes.Buffer
	require.NoError(t, Write(&b, []Text{{"version", []byte("v1")}}, r))
	return b.Bytes()
}

// FuzzReadRecording reads a state and records that may be anything. What a core
// makes of a state that nobody wrote is another question, which checksums spare.
func FuzzReadRecording(f *testing.F) {
	whole, err := Read(bytes.NewReader(tiny(f)))
	require.NoError(f, err)
	s := whole.Segments[0]
	f.Add(s.state, s.records)
	f.Fuzz(func(t *testing.T, state, records []byte) {
		_, err := (&Segment{state: state}).core()
		require.True(t, err == nil || errors.Is(err, ErrDamaged), "%v", err)
		for len(records) > 0 {
			var rec record
			if rec, records, err = cutRecord(records); err == nil {
				_, err = rec.event()
			}
			require.True(t, err == nil || errors.Is(err, ErrDamaged), "%v", err)
		}
	})
}

// FuzzReadFile reads what may be anything behind the compression.
func FuzzReadFile(f *testing.F) {
	f.Add(sectionsOf(f, tiny(f)))
	f.Add([]byte("T\x04\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		var file File
		err := file.sections(bytes.NewReader(content))
		require.True(t, err == nil || errors.Is(err, ErrDamaged) || errors.Is(err, ErrCut), "%v", err)
	})
}
