package traces

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/trace"
)

// summarize prints the last line of a replay, which is for programs. It returns the exit
// code, which is OK only if every check passed.
func summarize(w io.Writer, name string, r trace.Report, took time.Duration) int {
	f := r.Findings
	fmt.Fprintf(w, "%s: jobs=%d done=%d failed=%d lost=%d misplaced=%d affinity_violations=%d seconds=%.1f\n",
		name, r.Jobs, r.Done, r.Failed, f.Lost, f.Misplaced, f.AffinityViolations, took.Seconds())
	if r.Done == r.Jobs && r.Failed == 0 && f.Clean() {
		return exit.OK
	}
	return exit.Negative
}

// liveLine redraws the state of a replay on one line.
type liveLine struct {
	w     io.Writer
	width int
}

func (l *liveLine) show(s replayState) {
	ms := s.TraceMS
	line := fmt.Sprintf("trace %02d:%02d:%02d  arrived %d/%d  executed %d  answered %d",
		ms/3_600_000, ms/60_000%60, ms/1000%60, s.Arrived, s.Jobs, s.Executed, s.Answered)
	fmt.Fprintf(l.w, "\r%-*s", l.width, line)
	l.width = len(line)
}

func (l *liveLine) clear() {
	if l.width > 0 {
		fmt.Fprintf(l.w, "\r%s\r", strings.Repeat(" ", l.width))
	}
}
