package main

import (
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// noteLeast is the annotation that holds the least value of a number or
// duration, as it is written on a command line. Without it that is 0.
const noteLeast = "dispatcherd-least"

// atLeast sets the least value that flags take. Defaults are not held against
// it: a default may be a value that stands for "none".
func atLeast(flags *pflag.FlagSet, least string, names ...string) {
	annotate(flags, noteLeast, names, least)
}

// checkBounds returns an error for the first number or duration that was given
// and is less than its flag takes.
func (a *app) checkBounds(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		least, isNumber := leastOf(f)
		if err != nil || !f.Changed || !isNumber {
			return
		}
		given := f.Value.String()
		if origin := a.origins[f.Name]; origin != "flag --"+f.Name {
			given += " (" + origin + ")"
		}
		value := magnitude(f.Value.String())
		if math.IsNaN(value) || math.IsInf(value, 0) {
			err = failure(exitUsage, "--%s is %s, give a number", f.Name, given)
		} else if value < magnitude(least) {
			err = failure(exitUsage, "--%s is %s, must be at least %s", f.Name, given, least)
		}
	})
	return err
}

// leastOf is the least value that a flag takes, if it takes numbers or durations.
func leastOf(f *pflag.Flag) (least string, isNumber bool) {
	switch f.Value.Type() {
	case "duration":
		least = "0s"
	case "int", "int8", "int16", "int32", "int64", "uint64", "float64":
		least = "0"
	default:
		return "", false
	}
	if note := f.Annotations[noteLeast]; len(note) > 0 {
		least = note[0]
	}
	return least, true
}

// magnitude makes the text of a number or a duration comparable with others of
// its kind: durations are in seconds. Beyond 2⁵³ it is rounded, far above every
// least value.
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
