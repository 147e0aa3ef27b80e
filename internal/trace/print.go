package trace

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteText prints the report as aligned tables.
func (r Report) WriteText(w io.Writer) error {
	waits := [][]string{{"waits in seconds", "jobs", "mean", "p50", "p95", "max"}}
	for _, g := range r.Groups {
		waits = append(waits, []string{strings.TrimSpace(g.By + " " + g.Value), strconv.Itoa(g.Jobs),
			decimals(g.Mean), decimals(g.P50), decimals(g.P95), decimals(g.Max)})
	}
	classes := [][]string{{"slot class", "slots", "jobs", "on line h", "busy h", "utilisation"}}
	for _, c := range r.Classes {
		classes = append(classes, []string{className(c.Types), strconv.Itoa(c.Slots), strconv.Itoa(c.Jobs),
			fmt.Sprintf("%.1f", c.OnLine/3600), fmt.Sprintf("%.1f", c.Busy/3600), fmt.Sprintf("%.1f %%", 100*c.Utilisation)})
	}
	f := r.Findings
	again := ""
	if more := f.Placements - r.Jobs; more > 0 {
		again = fmt.Sprintf(" (%d more than jobs: a job that returns from a draining slot is placed again)", more)
	}
	_, err := fmt.Fprintf(w, "%s: %d jobs, %d done, %d failed, %s s from the first arrival to the last end\n\n%s\n%s\n"+
		"placements %d%s: misplaced %d, affinity violations %d, placed twice %d; jobs lost %d\n",
		r.Trace, r.Jobs, r.Done, r.Failed, decimals(r.Makespan), align(waits), align(classes),
		f.Placements, again, f.Misplaced, f.AffinityViolations, f.DoublePlacements, f.Lost)
	return err
}

// align pads cells so that columns line up: names to the left, numbers to the
// right.
func align(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// decimals formats seconds with three decimals, one decimal or none: the
// longer the time, the fewer.
func decimals(s float64) string {
	switch {
	case s < 10:
		return strconv.FormatFloat(s, 'f', 3, 64)
	case s < 1000:
		return strconv.FormatFloat(s, 'f', 1, 64)
	}
	return strconv.FormatFloat(s, 'f', 0, 64)
}

// className names a class by its types. It shortens a long name.
func className(types []string) string {
	const width = 48
	name := joinTypes(types)
	if utf8.RuneCountInString(name) <= width {
		return name
	}
	count := fmt.Sprintf("… (%d types)", len(types))
	return string([]rune(name)[:width-utf8.RuneCountInString(count)]) + count
}

// WriteComparison prints the waits of several runs of one trace side by side.
// A dash means that a run started no job of a group.
func WriteComparison(w io.Writer, names []string, runs []Report) error {
	header := []string{"waits in seconds", "jobs"}
	for _, column := range []string{"mean", "p95", "max"} {
		for i := range runs {
			header = append(header, fmt.Sprintf("%s [%d]", column, i+1))
		}
	}
	rows := [][]string{header}
	for _, group := range runs[0].Groups {
		row := []string{strings.TrimSpace(group.By + " " + group.Value), strconv.Itoa(group.Jobs)}
		var means, p95s, maxima []string
		for _, r := range runs {
			mean, p95, most := r.group(group.By, group.Value)
			means, p95s, maxima = append(means, mean), append(p95s, p95), append(maxima, most)
		}
		rows = append(rows, slices.Concat(row, means, p95s, maxima))
	}
	var legend strings.Builder
	for i, name := range names {
		fmt.Fprintf(&legend, "[%d] %s\n", i+1, name)
	}
	_, err := fmt.Fprintf(w, "%s\n%s", legend.String(), align(rows))
	return err
}

// group returns the printed waits of one group.
func (r Report) group(by, value string) (mean, p95, most string) {
	for _, g := range r.Groups {
		if g.By == by && g.Value == value {
			return decimals(g.Mean), decimals(g.P95), decimals(g.Max)
		}
	}
	return "-", "-", "-"
}
