// Package figure states measured values and their ranges.
package figure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/regression"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
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

// report measures until an interrupt, and prints the figures as the line of a command. Details and failures go to standard
// error. It returns the exit code.
func report(command string, measure func(context.Context) (figures, details Figures, err error)) int {
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

// Part is a part of a command. It returns the figures of the line, and further ones.
type Part struct {
	Name string
	Run  func(context.Context) (figures, details Figures, err error)
}

// OnRig is a part with a server of its own.
func OnRig(name string, o rig.Options, run func(context.Context, *rig.Rig) (figures, details Figures, err error)) Part {
	return Part{name, func(ctx context.Context) (figures, details Figures, err error) {
		r, err := rig.Start(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		return run(ctx, r)
	}}
}

// Plain is a part that compares the rates of plain jobs and of COPY with those of another
// commit.
func Plain(name string, p *regression.Plan, least, leastCopy float64) Part {
	return Part{"plain", func(ctx context.Context) (figures, details Figures, err error) {
		r, err := regression.Compare(ctx, *p)
		return Figures{AtLeast(name, r.Ratio, least), AtLeast("copy", r.Copy, leastCopy)}, nil, err
	}}
}

var errPart = errors.New("there is no such part")

// Main runs the wanted parts, separated by commas, prints their figures as the line of a
// command, and ends the program. The exit code is 1 if a value is out of range or a part
// failed, and otherwise 0.
func Main(command, wanted string, parts []Part) {
	os.Exit(report(command, func(ctx context.Context) (figures, details Figures, err error) {
		for name := range strings.SplitSeq(wanted, ",") {
			i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name })
			if i < 0 {
				return figures, details, fmt.Errorf("-parts %q: %w; there are %s", name, errPart, Names(parts))
			}
			f, d, err := parts[i].Run(ctx)
			figures, details = append(figures, f...), append(details, d...)
			if err != nil {
				return figures, details, fmt.Errorf("%s: %w", name, err)
			}
		}
		return figures, details, nil
	}))
}

// Names returns the names of the parts, separated by commas.
func Names(parts []Part) string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Name
	}
	return strings.Join(names, ",")
}
