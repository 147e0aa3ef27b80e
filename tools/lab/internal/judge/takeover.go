package judge

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// StartsAfter returns the time from each start of a dispatcher to the next start of
// a job on one of its workers. A dispatcher's start that no job followed counts as
// missing.
func StartsAfter(h *history.History, daemon string, starts []int64) (waits Waits, missing int) {
	var began []int64
	for i := range h.Processes {
		if p := &h.Processes[i]; p.Daemon == daemon {
			for k := range p.Runs {
				began = append(began, p.Runs[k].Start)
			}
		}
	}
	slices.Sort(began)
	for _, at := range starts {
		next, _ := slices.BinarySearch(began, at+1)
		if next == len(began) {
			missing++
			continue
		}
		waits = append(waits, time.Duration(began[next]-at))
	}
	slices.Sort(waits)
	return waits, missing
}
