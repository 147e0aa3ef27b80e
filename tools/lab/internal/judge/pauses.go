package judge

import (
	"slices"
	"time"
)

const (
	quietTime = time.Second      // a time without the start of any job that is longer is the effect of a fault
	recovery  = 15 * time.Second // at most: a controller lease of 10 s, and the start of a process
)

// Pauses are the times in which no job started, each at most as long as a recovery. Times are in microseconds.
type Pauses [][2]int64

// NewPauses returns the pauses between starts.
func NewPauses(starts []int64) (list Pauses) {
	slices.Sort(starts)
	for i := 1; i < len(starts); i++ {
		if starts[i]-starts[i-1] > quietTime.Microseconds() {
			list = append(list, [2]int64{starts[i-1], min(starts[i], starts[i-1]+recovery.Microseconds())})
		}
	}
	return list
}

// Active is the time between two instants without pauses.
func (p Pauses) Active(from, to int64) int64 {
	d := to - from
	for _, f := range p {
		if both := min(to, f[1]) - max(from, f[0]); both > 0 {
			d -= both
		}
	}
	return d
}
