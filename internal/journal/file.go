package journal

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/freeze"
)

// The errors of reading a file. They come wrapped, with what is wrong.
var (
	// ErrNoJournal says that a file is something else.
	ErrNoJournal = errors.New("this is no file of a flight recorder")
	// ErrDamaged says that a file's content is not what was written.
	ErrDamaged = errors.New("the file is damaged")
	// ErrCut says that a file ends too early.
	ErrCut = errors.New("the file is cut off")
	// ErrSchema says that a program with other types recorded it.
	ErrSchema = errors.New("another version of dispatcherd recorded this")
)

const (
	magic   = "DSPJRNL\n"
	version = 1

	sectionText    = 'T'
	sectionSegment = 'S'
	sectionRecords = 'E'
	sectionEnd     = 'Z'

	maxSection = 256 << 20 // bytes of one section, larger ones are not believed
	maxFile    = 2 << 30   // bytes of all sections
)

// TextMissing is the name of the texts that say which of the last steps a
// recorder does not hold.
const TextMissing = "missing"

// Text is something for people that goes with a recording.
type Text struct {
	Name    string // such as "configuration"
	Content []byte
}

// Write writes texts and what the recorders hold at this moment.
func Write(w io.Writer, texts []Text, recorders ...*Recorder) error {
	head := append([]byte(magic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(head[len(magic):], version)
	if _, err := w.Write(binary.LittleEndian.AppendUint64(head, files.schema)); err != nil {
		return err
	}
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	for _, r := range recorders {
		if gap := r.missing(); gap != "" {
			texts = append(slices.Clip(texts), Text{TextMissing, []byte(gap)})
		}
	}
	for _, t := range texts {
		if err := writeSection(zip, sectionText, appendText(nil, t.Name), t.Content); err != nil {
			return err
		}
	}
	for _, r := range recorders {
		for _, s := range r.hold() {
			head := appendText(nil, s.name)
			head = binary.LittleEndian.AppendUint64(head, uint64(s.now))
			head = binary.LittleEndian.AppendUint64(head, uint64(s.wall.UnixNano()))
			if err := writeSection(zip, sectionSegment, head, s.state); err != nil {
				return err
			}
			for _, c := range s.chunks {
				if err := writeSection(zip, sectionRecords, nil, c); err != nil {
					return err
				}
			}
		}
	}
	if err := writeSection(zip, sectionEnd, nil, nil); err != nil {
		return err
	}
	return zip.Close()
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
}

func writeSection(w io.Writer, tag byte, head, content []byte) error {
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, content)
	frame := binary.LittleEndian.AppendUint32([]byte{tag}, uint32(len(head)+len(content)))
	frame = binary.LittleEndian.AppendUint32(frame, sum)
	for _, b := range [][]byte{frame, head, content} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// File is a recording that was read.
type File struct {
	Texts    []Text
	Segments []Segment
	schema   uint64
}

// Segment is a part of a recording without gaps: where it begins, and records.
type Segment struct {
	Name    string    // of the recorder
	Begin   time.Time // when the first step happened
	now     actor.Instant
	state   []byte
	records []byte
}

// Read reads a file to its end. What it could read before an error it returns
// as well. The error is ErrNoJournal, ErrDamaged, ErrCut, or the reader's own.
func Read(in io.Reader) (*File, error) {
	f := &File{}
	head := make([]byte, len(magic)+4+8)
	buffered := bufio.NewReader(in)
	if _, err := io.ReadFull(buffered, head); err != nil || string(head[:len(magic)]) != magic {
		return f, fmt.Errorf("%w: it does not begin like one", ErrNoJournal)
	}
	if v := binary.LittleEndian.Uint32(head[len(magic):]); v != version {
		return f, fmt.Errorf("%w: its format is version %d, this program reads %d", ErrSchema, v, version)
	}
	f.schema = binary.LittleEndian.Uint64(head[len(magic)+4:])
	unzip, err := gzip.NewReader(buffered)
	if err != nil {
		return f, broken(err)
	}
	return f, f.sections(io.LimitReader(unzip, maxFile))
}

// broken tells a file that ends from one that is wrong.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends in the middle", ErrCut)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// sections reads all sections to the last one.
func (f *File) sections(in io.Reader) error {
	for n := 1; ; n++ {
		var frame [9]byte
		if _, err := io.ReadFull(in, frame[:]); err != nil {
			return broken(err)
		}
		size := binary.LittleEndian.Uint32(frame[1:])
		if size > maxSection {
			return fmt.Errorf("%w: section %d says that it has %d bytes", ErrDamaged, n, size)
		}
		content, err := io.ReadAll(io.LimitReader(in, int64(size)))
		if err != nil {
			return broken(err)
		}
		if len(content) < int(size) {
			return broken(io.ErrUnexpectedEOF)
		}
		if crc32.Checksum(content, castagnoli) != binary.LittleEndian.Uint32(frame[5:]) {
			return fmt.Errorf("%w: section %d does not have its checksum", ErrDamaged, n)
		}
		if frame[0] == sectionEnd {
			return nil
		}
		if err := f.section(frame[0], content); err != nil {
			return fmt.Errorf("%w (section %d)", err, n)
		}
	}
}

func (f *File) section(tag byte, content []byte) error {
	switch tag {
	case sectionText:
		name, rest, err := cutText(content)
		if err != nil {
			return err
		}
		f.Texts = append(f.Texts, Text{name, rest})
	case sectionSegment:
		name, rest, err := cutText(content)
		if err != nil {
			return err
		}
		if len(rest) < 16 {
			return fmt.Errorf("%w: a segment of %d bytes", ErrDamaged, len(rest))
		}
		f.Segments = append(f.Segments, Segment{
			Name: name, now: actor.Instant(binary.LittleEndian.Uint64(rest)),
			Begin: time.Unix(0, int64(binary.LittleEndian.Uint64(rest[8:]))).UTC(), state: rest[16:],
		})
	case sectionRecords:
		if len(f.Segments) == 0 {
			return fmt.Errorf("%w: records before any segment", ErrDamaged)
		}
		s := &f.Segments[len(f.Segments)-1]
		s.records = append(s.records, content...)
	default:
		return fmt.Errorf("%w: a section %q", ErrDamaged, tag)
	}
	return nil
}

func cutText(b []byte) (string, []byte, error) {
	if len(b) < 2 || len(b)-2 < int(binary.LittleEndian.Uint16(b)) {
		return "", nil, fmt.Errorf("%w: a name is longer than its section", ErrDamaged)
	}
	n := int(binary.LittleEndian.Uint16(b))
	return string(b[2 : 2+n]), b[2+n:], nil
}

// Text returns the content of a text, or false.
func (f *File) Text(name string) ([]byte, bool) {
	for _, t := range f.Texts {
		if t.Name == name {
			return t.Content, true
		}
	}
	return nil, false
}

// core makes the core with which a segment begins.
func (s *Segment) core() (*actor.Core, error) {
	var c actor.Core
	rest, err := freeze.Read(files.codec, s.state, files.state, &c)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the state of %s at %s: %w", ErrDamaged, s.Name, s.Begin.Format(time.RFC3339Nano), err)
	}
	return &c, nil
}
