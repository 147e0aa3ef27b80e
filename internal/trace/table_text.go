package trace

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// WriteText prints the report as aligned tables.
func (r Report) WriteText(w io.Writer) error {
	text := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(text, "%s: %d jobs, %d done, %d failed, %s s from the first arrival to the last end\n\n",
		r.Trace, r.Jobs, r.Done, r.Failed, decimals(r.Makespan))
	fmt.Fprintln(text, "waits in seconds\tjobs\tmean\tp50\tp95\tmax\t")
	for _, g := range r.Groups {
		fmt.Fprintf(text, "%s\t%d\t%s\t%s\t%s\t%s\t\n",
			strings.TrimSpace(g.By+" "+g.Value), g.Jobs, decimals(g.Mean), decimals(g.P50), decimals(g.P95), decimals(g.Max))
	}
	fmt.Fprintln(text, "\nslot class\tslots\tjobs\ton line h\tbusy h\tutilisation\t")
	for _, c := range r.Classes {
		fmt.Fprintf(text, "%s\t%d\t%d\t%.1f\t%.1f\t%.1f %%\t\n",
			className(c.Types), c.Slots, c.Jobs, c.OnLine/3600, c.Busy/3600, 100*c.Utilisation)
	}
	f := r.Findings
	fmt.Fprintf(text, "\nmisplaced %d, affinity violations %d, placed twice %d, lost %d, of %d placements\n",
		f.Misplaced, f.AffinityViolations, f.DoublePlacements, f.Lost, f.Placements)
	return text.Flush()
}

// decimals prints seconds so that short waits keep three digits and long ones
// do not pretend to.
func decimals(s float64) string {
	switch {
	case s < 10:
		return strconv.FormatFloat(s, 'f', 3, 64)
	case s < 1000:
		return strconv.FormatFloat(s, 'f', 1, 64)
	}
	return strconv.FormatFloat(s, 'f', 0, 64)
}

// className names a class by its types, cut where a line would get too long.
func className(types []string) string {
	const width = 48
	name := strings.Join(types, "|")
	if utf8.RuneCountInString(name) <= width {
		return name
	}
	count := fmt.Sprintf("… (%d types)", len(types))
	return string([]rune(name)[:width-utf8.RuneCountInString(count)]) + count
}
