package settings

import (
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// noteBounds is the annotation with the least and the largest value of a
// number or duration, as on a command line.
const noteBounds = "dispatcherd-bounds"

// Bounds that several flags share.
const (
	Longest       = "87600h" // ten years: sums of such durations do not overflow
	LongestWait   = "1h"     // for one peer or one query: a longer wait means a hang
	MostHeld      = "1000000"
	MostBytes     = "1099511627776" // 1 TiB
	MostInMessage = "268435456"     // 256 MiB, more than Postgres stores in a jsonb
	LargestID     = "9223372036854775807"
)

// Bounds of the limit of an attempt, which jobs store as a 32-bit number of milliseconds.
const (
	ShortestTimeout = time.Millisecond
	LongestTimeout  = 24 * 24 * time.Hour
)

// Between sets the range of flags, both ends included. It does not apply to defaults: a
// default may be a value that means "none".
func Between(flags *pflag.FlagSet, least, most string, names ...string) {
	annotate(flags, noteBounds, names, least, most)
}

// checkBounds returns an error for the first given number or duration outside its range.
func (a *Invocation) checkBounds(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		least, most := BoundsOf(f)
		if err != nil || !f.Changed || !IsNumber(f) {
			return
		}
		given := f.Value.String()
		if origin := a.origins[f.Name]; origin != "flag --"+f.Name {
			given += " (" + origin + ")"
		}
		value := magnitude(f.Value.String())
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0):
			err = exit.Errorf(exit.Usage, "--%s is %s, give a number", f.Name, given)
		case value < magnitude(least):
			err = exit.Errorf(exit.Usage, "--%s is %s, must be at least %s", f.Name, given, least)
		case value > magnitude(most):
			err = exit.Errorf(exit.Usage, "--%s is %s, must be at most %s", f.Name, given, most)
		}
	})
	return err
}

// IsNumber reports whether a flag takes numbers or durations.
func IsNumber(f *pflag.Flag) bool {
	switch f.Value.Type() {
	case "duration", "int", "int8", "int16", "int32", "int64", "uint64", "float64":
		return true
	}
	return false
}

// BoundsOf returns the range of a flag with numbers or durations. A test checks that every
// such flag has a range.
func BoundsOf(f *pflag.Flag) (least, most string) {
	if bounds := f.Annotations[noteBounds]; len(bounds) == 2 {
		return bounds[0], bounds[1]
	}
	return "0", "Inf"
}

// magnitude makes the text of a number or a duration comparable with others of its kind;
// durations are in seconds. Values above 2⁵³ are rounded, so that a value slightly above the
// largest id may pass.
func magnitude(text string) float64 {
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds()
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return n
}
