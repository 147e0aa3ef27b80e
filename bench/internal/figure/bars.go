package figure

import (
	"fmt"
	"strings"
)

// Bar is one bar that consists of parts.
type Bar struct {
	Name  string
	Parts []float64 // in the order of the names passed to Bars
}

// Bars draws horizontal bars of stacked parts, labelled with the values.
func Bars(title, unit string, parts []string, bars []Bar) string {
	const left, row, top = 190, 34, 64
	high := top + row*len(bars) + 16
	longest := 0.0
	for _, bar := range bars {
		longest = max(longest, sum(bar.Parts))
	}
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13">`+"\n",
		width,
		high,
	)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, high)
	fmt.Fprintf(&b, `<text x="16" y="22" font-size="15" font-weight="600" fill="#111827">%s</text>`+"\n", escape(title))
	for i, name := range parts {
		x := 16 + 180*i
		fmt.Fprintf(
			&b,
			`<rect x="%d" y="36" width="12" height="12" fill="%s"/><text x="%d" y="47" fill="#374151">%s</text>`+"\n",
			x,
			colours[i%len(colours)],
			x+18,
			escape(name),
		)
	}
	for i, bar := range bars {
		y, x := top+row*i, float64(left)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#374151">%s</text>`+"\n", left-10, y+17, escape(bar.Name))
		for k, v := range bar.Parts {
			w := v / max(longest, 1e-9) * float64(width-left-100)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="24" fill="%s"/>`, x, y, w, colours[k%len(colours)])
			if w > 30 {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#ffffff">%.1f</text>`, x+w/2, y+17, v)
			}
			x += w
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#111827">%.1f %s</text>`+"\n", x+8, y+17, sum(bar.Parts), escape(unit))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}
