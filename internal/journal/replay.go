package journal

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
)

// Step is one step of a recording, made again.
type Step struct {
	Number  int // from 1, through all segments of a file
	Segment *Segment
	Now     actor.Instant
	At      time.Time // by the recording host's clock, no finer than a millisecond
	Event   actor.Event
	Effects []actor.Effect // valid until the next step; what a file never holds is missing in them
	Core    *actor.Core    // after the step; to be looked at only
	// Recorded and Replayed are the effects, by number and hash, of then and now.
	Recorded, Replayed Outcome
}

// Outcome stands for the effects of a step.
type Outcome struct {
	Effects int
	Hash    uint32
}

// Differs reports that the replayed core did something else.
func (s *Step) Differs() bool { return s.Recorded != s.Replayed }

// Replay makes all steps again, in order, and shows them to visit, which ends it
// with an error. The error is visit's, ErrSchema, or ErrDamaged. A core that
// breaks down in the middle is reported as ErrDamaged: what it was given makes no
// sense, or it breaks down in the daemon as well.
func (f *File) Replay(visit func(*Step) error) error {
	if f.schema != files.schema {
		return fmt.Errorf("%w: its core holds other things than this program's (schema %016x, not %016x); replay it with the program that recorded it",
			ErrSchema, f.schema, files.schema)
	}
	number := 0
	for i := range f.Segments {
		if err := f.Segments[i].replay(&number, visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *Segment) replay(number *int, visit func(*Step) error) error {
	core, err := s.core()
	if err != nil {
		return err
	}
	hash := hasher{w: files.codec.NewWriter()}
	for rest := s.records; len(rest) > 0; {
		var rec record
		if rec, rest, err = cutRecord(rest); err != nil {
			return err
		}
		*number++
		step := Step{
			Number: *number, Segment: s, Now: rec.now, Core: core, Recorded: Outcome{rec.count, rec.hash},
			At: s.Begin.Add(time.Duration(rec.now-s.now) * time.Millisecond),
		}
		if err := step.make(&rec, &hash); err != nil {
			return fmt.Errorf("step %d: %w", *number, err)
		}
		if err := visit(&step); err != nil {
			return err
		}
	}
	return nil
}

// make takes the step.
func (s *Step) make(rec *record, hash *hasher) (err error) {
	if s.Event, err = rec.event(); err != nil {
		return err
	}
	ev, err := rec.event() // the core may use what it is given anew
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the core breaks down: %v", ErrDamaged, p)
		}
	}()
	s.Effects = s.Core.Step(rec.now, ev, nil)
	s.Replayed = Outcome{min(len(s.Effects), 0xffff), hash.sum(s.Effects)}
	return nil
}
