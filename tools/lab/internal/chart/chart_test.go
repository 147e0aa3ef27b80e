package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestFigureIsWellFormedAndContainsEveryPoint(t *testing.T) {
	svg := SVG(
		Panel{
			Title: "a < b & c",
			XName: "x",
			YName: "y",
			LogX:  true,
			Lines: []Line{{Name: "one", Points: []Point{{10, 1}, {100, 2}, {1000, 3}}}},
		},
		Panel{Title: "flat", Lines: []Line{{Points: []Point{{5, 0}}}, {}}},
	)
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(svg, "<circle"); n != 4 {
		t.Errorf("%d points, want 4", n)
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, ">-0<") {
		t.Error("a point has no position")
	}
}

func TestAxesHaveRoundValues(t *testing.T) {
	for _, c := range []struct {
		from, to float64
		want     []float64
	}{
		{0, 100_000, []float64{0, 20_000, 40_000, 60_000, 80_000, 100_000}},
		{1, 8, []float64{2, 4, 6, 8}},
		{3, 3, []float64{3}},
	} {
		if got := steps(c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("steps(%v, %v) = %v, want %v", c.from, c.to, got, c.want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 9_999: "9999", 10_000: "10 k", 1_500_000: "1.5 M"} {
		if got := Short(v); got != want {
			t.Errorf("Short(%v) = %q, want %q", v, got, want)
		}
	}
}
