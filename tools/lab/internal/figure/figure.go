// Package figure states measured values and their ranges.
package figure

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Figure is a measured value and its range.
type Figure struct {
	Name             string
	Value, Low, High float64
}

// Figures are those of a part, in their order.
type Figures []Figure

// None is a number that shall be 0.
func None(name string, value float64) Figure { return Figure{name, value, 0, 0} }

// AtMost is a value with an upper bound.
func AtMost(name string, value, bound float64) Figure {
	return Figure{name, value, math.Inf(-1), bound}
}

// AtLeast is a value with a lower bound.
func AtLeast(name string, value, bound float64) Figure {
	return Figure{name, value, bound, math.Inf(1)}
}

// String returns the figures as one line.
func (f Figures) String() string {
	var words []string
	for _, x := range f {
		words = append(words, x.Name+"="+strconv.FormatFloat(math.Round(x.Value*1e4)/1e4, 'f', -1, 64))
	}
	return strings.Join(words, " ")
}

// Failures describes the figures that are out of range.
func (f Figures) Failures() (list []string) {
	for _, x := range f {
		if !(x.Value >= x.Low && x.Value <= x.High) { // also if it is no number
			list = append(list, fmt.Sprintf("%s is %v, want %v to %v", x.Name, x.Value, x.Low, x.High))
		}
	}
	return list
}

// Report measures until an interrupt, and prints the figures as the line of a command. Details and failures go to standard error. It
// returns the exit code.
func Report(command string, measure func(context.Context) (figures, details Figures, err error)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	figures, details, err := measure(ctx)
	if len(details) > 0 {
		fmt.Fprintln(os.Stderr, command+": details:", details)
	}
	fmt.Fprintln(os.Stdout, command+":", figures)
	failures := slices.Concat(figures, details).Failures()
	if err != nil {
		failures = append(failures, err.Error())
	}
	for _, f := range failures {
		fmt.Fprintln(os.Stderr, command+":", f)
	}
	return min(len(failures), 1)
}
