package backlog

import "github.com/dispatcherd/dispatcherd"

// Levels is the number of pairs of a priority and a duration class.
const Levels = priorities * dispatcherd.DurationClasses

// Level numbers the priority and the duration class of a lane, from 0 to Levels - 1.
func (l Lane) Level() int { return int(l.Class)*priorities + int(l.Priority) }
