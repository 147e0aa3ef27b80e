package console

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progressEvery is the least time between two drawings.
const progressEvery = 100 * time.Millisecond

const progressWidth = 30 // characters of the bar

// Progress redraws one line while a long input is read. It belongs to one goroutine. Use a nil
// Progress, which draws nothing, if the output is not a terminal.
type Progress struct {
	w     io.Writer
	what  string // what is counted, in the plural
	total int64  // size of the whole in bytes; 0 if unknown
	now   func() time.Time

	begun, drawn time.Time
	width        int // characters of the line on the screen
}

// NewProgress starts a progress line. total is the size of the input in bytes, 0 if unknown.
func NewProgress(w io.Writer, what string, total int64, now func() time.Time) *Progress {
	return &Progress{w: w, what: what, total: total, now: now, begun: now()}
}

// Update draws the state at most once per interval.
func (p *Progress) Update(count, bytes int64) {
	if p == nil {
		return
	}
	now := p.now()
	if now.Sub(p.drawn) < progressEvery {
		return
	}
	p.drawn = now
	line := fmt.Sprintf("%d %s", count, p.what)
	if spent := now.Sub(p.begun).Seconds(); spent > 0 {
		line += fmt.Sprintf("  %.0f/s", float64(count)/spent)
	}
	if p.total > 0 {
		share := min(float64(bytes)/float64(p.total), 1)
		full := int(share * progressWidth)
		line = fmt.Sprintf("[%s%s] %3.0f %%  %s", strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), share*100, line)
	}
	fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	p.width = len(line)
}

// Clear removes the line from the screen.
func (p *Progress) Clear() {
	if p != nil && p.width > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
		p.width = 0
	}
}
