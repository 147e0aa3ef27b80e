package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// watchPause is the time between two reads of status --watch.
const watchPause = time.Second

// StatusCommand shows what the whole cluster does.
func (a *Invocation) StatusCommand() *cobra.Command {
	var watch bool
	cmd := New("status", "Show what the whole cluster does, and what is wrong",
		"  dispatcherd status\n  dispatcherd status --watch\n  dispatcherd status -o json | jq .status.alarms")
	cmd.Long = `Shows all dispatchers of the database, their slots, the waiting jobs, and alarms.

A slot is BUSY while a job runs on it, and RESERVED while a job is chosen for it that has not
started yet. The star marks the dispatcher that answers. HEARTBEAT is the time since the
dispatcher has written to Postgres that it lives. WAITING counts the pending jobs in Postgres
and the waiting on-demand requests of a type, OLDEST says how long the oldest of them has
waited, and OF W compares this with W. A job that arrives more than W after another one cannot
overtake it, so a wait near W says that the slots of the type do not suffice. ENDED/S counts
the attempts that ended per second in the last minute. FAILED counts those that failed or
crashed in the last hour. A dispatcher counts from its start.`
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for {
			err := a.showStatus(cmd.Context(), watch)
			if err != nil || !watch {
				return err
			}
			if !background.Pause(cmd.Context(), watchPause) {
				return nil
			}
		}
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every second, until an interrupt")
	a.OverClient(cmd)
	return cmd
}

// showStatus shows the status once. On a terminal, watching shows it in place, and an error instead while the dispatcher does not answer.
func (a *Invocation) showStatus(ctx context.Context, watching bool) error {
	asked, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	s, err := a.client.Status(asked)
	inPlace, width, height := watching && a.IsTerminal(a.Out), statusWidth, 24
	if inPlace {
		if w, h, err := term.GetSize(int(a.Out.(*os.File).Fd())); err == nil {
			width, height = w, h
		}
	}
	switch {
	case watching && ctx.Err() != nil:
		return nil
	case err != nil && !inPlace:
		return err
	case a.JSON() && err == nil:
		return a.PrintJSON("status", s)
	}
	var frame bytes.Buffer
	if err != nil {
		fmt.Fprintln(&frame, Printable(a.Explain(err).Error()))
	} else {
		writeStatus(&frame, &s, width)
	}
	if inPlace {
		return redraw(a.Out, frame.String(), width, height)
	}
	if watching {
		frame.WriteByte('\n')
	}
	_, err = frame.WriteTo(a.Out)
	return err
}

// redraw replaces what the terminal shows by as much of a text as it has room for.
func redraw(terminal io.Writer, text string, width, height int) error {
	lines := strings.SplitAfterN(text, "\n", height)
	for i, line := range lines[:min(len(lines), height-1)] {
		lines[i] = shorten(strings.TrimSuffix(line, "\n"), width) + "\x1b[K\n" // erase the rest of the line
	}
	// From the top; at the end it erases what is below.
	_, err := fmt.Fprint(terminal, "\x1b[H", strings.Join(lines[:min(len(lines), height-1)], ""), "\x1b[J")
	return err
}

// Widths of texts in a status.
const (
	nameWidth   = 24
	statusWidth = 100
)

// writeStatus writes a status for people. A buffer takes all of it.
func writeStatus(w *bytes.Buffer, s *contract.Status, width int) {
	say := func(format string, args ...any) { Wrap(w, OneLine(fmt.Sprintf(format, args...)), width) }
	window, total, waiting, least, oldest := time.Duration(s.Window)*time.Second, &s.Total, 0, When(s.MoreTypes > 0, "at least "), 0.0
	types, dispatchers := make([][]any, len(s.Types)), make([][]any, len(s.Dispatchers))
	for i, t := range s.Types {
		n, exact := t.Waiting()
		more := When(!exact, "over ")
		types[i] = []any{
			shorten(t.Type, nameWidth), more + strconv.Itoa(n), When(t.Oldest > 0, "%v", span(spanOf(t.Oldest))),
			When(t.Oldest > 0 && s.Window > 0 && t.Pause == nil, "%.0f %%", 100*t.Oldest/s.Window), t.Slots, t.Free,
			shorten(pauseText(t.Pause), nameWidth),
		}
		waiting, oldest, least = waiting+n, max(oldest, t.Oldest), cmp.Or(least, more)
	}
	for i, m := range s.Dispatchers {
		state := When(!m.Lives() || m.Answered, "%s", m.State)
		dispatchers[i] = []any{
			shorten(m.Name, nameWidth) + When(m.Self, " *"), cmp.Or(state, "no answer"), span(spanOf(m.HeartbeatAge)),
			m.Slots, m.Busy, m.Reserved, m.Free, m.Drained, fmt.Sprintf("%.1f", m.PerSecond), m.Failures,
		}
	}
	say("at       %s", Stamp(s.At))
	say("slots    %d: %d busy, %d reserved, %d free%s", total.Slots, total.Busy, total.Reserved, total.Free,
		When(total.Drained > 0, ", %d drained", total.Drained))
	say("waiting  %s%s%s", least, Counted(waiting, "job"),
		When(oldest > 0, ", the oldest for %v%s", span(spanOf(oldest)), When(s.Window > 0, " (W is %v)", window)))
	say("ended    %.1f per second in the last minute; %s failed in the last hour", total.PerSecond, Counted(total.Failures, "attempt"))
	for _, note := range s.Notes {
		say("note     %s", note)
	}
	for _, alarm := range s.Alarms {
		say("ALARM    %s", alarm.Text)
	}
	fmt.Fprintln(w)
	_ = writeTable(w, "dispatcher, state, heartbeat, slots, busy, reserved, free, drained, ended/s, failed", dispatchers)
	if len(types) > 0 {
		fmt.Fprintln(w)
		_ = writeTable(w, "type, waiting, oldest, of w, slots, free, paused", types)
	}
	if s.MoreTypes > 0 {
		say("%s left out: 'dispatcherd types' lists all", Counted(s.MoreTypes, "type"))
	}
}
