package backlog

import (
	"math/bits"

	"github.com/dispatcherd/dispatcherd"
)

// Levels is the number of pairs of a priority and a duration class.
const Levels = priorities * dispatcherd.DurationClasses

// Level numbers the priority and the duration class of a lane, from 0 to Levels - 1.
func (l Lane) Level() int { return int(l.Class)*priorities + int(l.Priority) }

// LevelSet is a set of levels.
type LevelSet [2]uint64

// Empty reports whether the set is empty.
func (s *LevelSet) Empty() bool { return *s == LevelSet{} }

// Put adds or removes a level.
func (s *LevelSet) Put(level int, in bool) {
	s[level/64] &^= 1 << (level % 64)
	if in {
		s[level/64] |= 1 << (level % 64)
	}
}

// Next returns the first level of the set from a level on; ok is false if there is none.
func (s *LevelSet) Next(from int) (level int, ok bool) {
	for word := from / 64; word < len(s); word++ {
		if rest := s[word] >> (from % 64) << (from % 64); rest != 0 {
			return 64*word + bits.TrailingZeros64(rest), true
		}
		from = 0
	}
	return 0, false
}
