package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files returns the paths of the files that a trace in dir can have.
func Files(dir string) []string {
	return []string{filepath.Join(dir, slotsFile), filepath.Join(dir, jobsFile), filepath.Join(dir, eventsFile)}
}

// Write writes the trace to dir in the format that Load reads. It creates dir if
// necessary, and replaces the files of an earlier trace.
func (t *Trace) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	err := errors.Join(
		writeTable(filepath.Join(dir, slotsFile), slotColumns, t.writeSlots),
		writeTable(filepath.Join(dir, jobsFile), t.jobColumns(), t.writeJobs))
	events := filepath.Join(dir, eventsFile)
	if len(t.Events) > 0 {
		err = errors.Join(err, writeTable(events, eventColumns, t.writeEvents))
	} else if gone := os.Remove(events); gone != nil && !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// writeSlots writes the lines of slots.csv. quote preserves every name that
// Load accepts.
func (t *Trace) writeSlots(w io.Writer) {
	for _, s := range t.Slots {
		fmt.Fprintf(w, "%d,%s,%s\n", s.ID, quote(s.Worker), quote(joinTypes(s.Types)))
	}
}

// jobColumns returns the columns of jobs.csv.
func (t *Trace) jobColumns() []string {
	if t.hinted() {
		return append(slices.Clone(jobColumns), expectedColumn)
	}
	return jobColumns
}

// hinted reports whether some job has an expected duration.
func (t *Trace) hinted() bool {
	return slices.ContainsFunc(t.Jobs, func(j Job) bool { return j.ExpectedMS > 0 })
}

func (t *Trace) writeJobs(w io.Writer) {
	hinted := t.hinted()
	for _, j := range t.Jobs {
		fmt.Fprintf(w, "%d,%s,%s,%d,%s,%s",
			j.ID, formatSeconds(j.ArrivalMS), quote(j.Type), j.Priority, j.Mode, formatSeconds(j.DurationMS))
		switch {
		case j.ExpectedMS > 0:
			fmt.Fprintf(w, ",%s", formatSeconds(j.ExpectedMS))
		case hinted:
			fmt.Fprint(w, ",")
		}
		fmt.Fprintln(w)
	}
}

func (t *Trace) writeEvents(w io.Writer) {
	for _, e := range t.Events {
		fmt.Fprintf(w, "%s,%d,%s\n", formatSeconds(e.AtMS), e.Slot, e.Kind)
	}
}

// WriteSchedule writes a schedule as job_id,start_ms,slot_id in the order given.
func WriteSchedule(w io.Writer, ps []Placement) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, strings.Join(planColumns, ","))
	for _, p := range ps {
		fmt.Fprintf(b, "%d,%d,%d\n", p.Job, p.StartMS, p.Slot)
	}
	return b.Flush()
}

// writeTable writes a header and the lines that a function produces. The buffer
// keeps the first error, which is checked at the end.
func writeTable(path string, columns []string, lines func(io.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(f)
	fmt.Fprintln(b, strings.Join(columns, ","))
	lines(b)
	return errors.Join(b.Flush(), f.Close())
}

func quote(s string) string {
	if !strings.ContainsAny(s, ",\"\r\n") && strings.TrimSpace(s) == s {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
