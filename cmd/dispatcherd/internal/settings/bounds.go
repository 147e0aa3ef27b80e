package settings

import (
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// noteBounds is the annotation that holds the least and the largest value of a
// number or duration, as they are written on a command line.
const noteBounds = "dispatcherd-bounds"

// Bounds that several flags share.
const (
	Longest       = "87600h" // ten years: sums of such spans overflow nowhere
	LongestWait   = "1h"     // for one peer or one query: who waits longer has hung
	MostHeld      = "1000000"
	MostBytes     = "1099511627776" // 1 TiB
	MostInMessage = "268435456"     // 256 MiB, more than Postgres stores in a jsonb
	LargestID     = "9223372036854775807"
)

// Bounds of the limit of an attempt: jobs name theirs as a 32-bit number of
// milliseconds.
const (
	ShortestTimeout = time.Millisecond
	LongestTimeout  = 24 * 24 * time.Hour
)

// Between sets the values that flags take, both ends included. Defaults are not
// held against them: a default may be a value that stands for "none".
func Between(flags *pflag.FlagSet, least, most string, names ...string) {
	annotate(flags, noteBounds, names, least, most)
}

// checkBounds returns an error for the first number or duration that was given
// and that its flag does not take.
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

// BoundsOf are the least and the largest value of a flag that takes numbers or
// durations. A test holds that every such flag has been given them.
func BoundsOf(f *pflag.Flag) (least, most string) {
	if bounds := f.Annotations[noteBounds]; len(bounds) == 2 {
		return bounds[0], bounds[1]
	}
	return "0", "Inf"
}

// magnitude makes the text of a number or a duration comparable with others of
// its kind: durations are in seconds. Beyond 2⁵³ it is rounded, which lets pass
// what is about as large as the largest id.
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
