// Package chart draws line charts as SVG that can be read on a web page in light
// and dark mode.
package chart

import (
	"fmt"
	"math"
	"strings"
)

// Point is a point of a line.
type Point struct{ X, Y float64 }

// Line is one curve with its name.
type Line struct {
	Name   string
	Points []Point // in ascending order of X
	Dashed bool
}

// Panel is one chart: lines over a common axis.
type Panel struct {
	Title string
	XName string
	YName string // label of the Y axis, with its unit
	LogX  bool
	Lines []Line
	Top   float64 // upper end of the Y axis; 0 = computed from the points
}

// Sizes in pixels.
const (
	width      = 760
	height     = 300 // height of a panel
	marginLeft = 84
	marginEnd  = 24
	marginTop  = 46
	marginFoot = 52
)

var colours = []string{"#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2"}

// SVG draws the panels one below the other.
func SVG(panels ...Panel) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13">`+"\n",
		width, height*len(panels))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height*len(panels))
	for i := range panels {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*height)
		panels[i].draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// scale maps values to pixels.
type scale struct {
	from, to   float64 // range of the values
	start, end float64 // range in pixels
	log        bool
}

func (s scale) at(v float64) float64 {
	from, to := s.from, s.to
	if s.log {
		v, from, to = math.Log10(v), math.Log10(from), math.Log10(to)
	}
	if to == from {
		return (s.start + s.end) / 2
	}
	return s.start + (v-from)/(to-from)*(s.end-s.start)
}

func (p *Panel) scales() (x, y scale) {
	x = scale{from: math.Inf(1), to: math.Inf(-1), start: marginLeft, end: width - marginEnd, log: p.LogX}
	y = scale{start: height - marginFoot, end: marginTop}
	for _, l := range p.Lines {
		for _, pt := range l.Points {
			x.from, x.to = min(x.from, pt.X), max(x.to, pt.X)
			y.to = max(y.to, pt.Y)
		}
	}
	if p.Top > 0 {
		y.to = p.Top
	}
	step := niceStep(y.to / 5)
	y.to = math.Max(math.Ceil(y.to/step)*step, step)
	return x, y
}

func (p *Panel) draw(b *strings.Builder) {
	x, y := p.scales()
	fmt.Fprintf(b, `<text x="%d" y="20" font-size="15" font-weight="600" fill="#111827">%s</text>`+"\n", marginLeft, escape(p.Title))
	for _, v := range steps(0, y.to) {
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e5e7eb"/>`, marginLeft, y.at(v), width-marginEnd, y.at(v))
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end" fill="#4b5563">%s</text>`+"\n", marginLeft-8, y.at(v)+4, Short(v))
	}
	for _, v := range p.xTicks(x) {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#9ca3af"/>`, x.at(v), height-marginFoot, x.at(v), height-marginFoot+5)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#4b5563">%s</text>`+"\n", x.at(v), height-marginFoot+20, Short(v))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#374151">%s</text>`+"\n",
		(marginLeft+width-marginEnd)/2, height-10, escape(p.XName))
	fmt.Fprintf(b, `<text transform="translate(18 %d) rotate(-90)" text-anchor="middle" fill="#374151">%s</text>`+"\n",
		(marginTop+height-marginFoot)/2, escape(p.YName))
	for i := range p.Lines {
		p.drawLine(b, i, x, y)
	}
}

func (p *Panel) drawLine(b *strings.Builder, i int, x, y scale) {
	l, colour := &p.Lines[i], colours[i%len(colours)]
	dash := ""
	if l.Dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	var path strings.Builder
	for k, pt := range l.Points {
		fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[k == 0], x.at(pt.X), y.at(pt.Y))
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", path.String(), colour, dash)
	if len(l.Points) <= 20 {
		for _, pt := range l.Points {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s → %s</title></circle>`+"\n",
				x.at(pt.X), y.at(pt.Y), colour, escape(l.Name), Short(pt.X), Short(pt.Y))
		}
	}
	if l.Name == "" {
		return
	}
	left := marginLeft + 170*i
	fmt.Fprintf(b, `<line x1="%d" y1="34" x2="%d" y2="34" stroke="%s" stroke-width="2"%s/>`, left, left+18, colour, dash)
	fmt.Fprintf(b, `<text x="%d" y="38" fill="#374151">%s</text>`+"\n", left+24, escape(l.Name))
}

// xTicks returns powers of ten for a logarithmic axis that spans more than one of
// them, all distinct points for an axis with few points, and round values
// otherwise.
func (p *Panel) xTicks(x scale) []float64 {
	if !p.LogX {
		return steps(x.from, x.to)
	}
	var ticks []float64
	for v := math.Pow(10, math.Ceil(math.Log10(x.from)-1e-9)); v <= x.to*1.0001; v *= 10 {
		ticks = append(ticks, v)
	}
	if len(ticks) >= 3 || len(p.Lines) == 0 {
		return ticks
	}
	ticks = nil
	for _, pt := range p.Lines[0].Points {
		ticks = append(ticks, pt.X)
	}
	return ticks
}

// steps returns about five round values between from and to.
func steps(from, to float64) []float64 {
	if to <= from {
		return []float64{from}
	}
	step := niceStep((to - from) / 5)
	var values []float64
	for i := math.Ceil(from/step-1e-9) + 0; i*step <= to+step*1e-9; i++ {
		values = append(values, i*step)
	}
	return values
}

// niceStep returns the smallest of 1, 2, 5, 10, 20 … that is at least v.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// Short formats a number for an axis: 250, 10 k, 1.5 M.
func Short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return trim(v/1e6) + " M"
	case a >= 1e4:
		return trim(v/1e3) + " k"
	}
	return trim(v)
}

func trim(v float64) string {
	s := fmt.Sprintf("%.2f", v)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
