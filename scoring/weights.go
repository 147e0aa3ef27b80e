package scoring

import (
	"fmt"
	"math"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// MaxAge is the age at which jobs stop ageing: ten years. The bound prevents
// overflow. Orders are exact for ages below it.
const MaxAge = 3653 * 24 * time.Hour

// NoCap as Weights.OnDemandCap removes the age cap, as in article 1. A steady
// overload of on-demand requests then starves queued jobs, and there is no
// overtaking window. NoCap is meant for simulations of other policies, not for
// production.
const NoCap time.Duration = math.MaxInt64

// Bounds of the weights, in points and points per second. They keep every total
// below 2^60 thousandths, so that differences of totals do not overflow either.
const (
	maxPoints = 1_000_000_000
	maxSlope  = 1_000_000
)

// MaxDurationWindow is the largest Weights.DurationWindow: 30 days.
const MaxDurationWindow = 30 * 24 * time.Hour

const maxAgeMS = int64(MaxAge / time.Millisecond)

// Weights are the parameters of the score. The zero value is not valid; start with
// Default.
type Weights struct {
	Priority       int64         // points per unit of priority
	Ageing         int64         // points per second of waiting, ≥ 1
	Rarity         int64         // points, divided by the capacity of the job's type and rounded down
	OnDemand       int64         // points an on-demand request starts with
	OnDemandAgeing int64         // points per second an on-demand request gains on top of Ageing
	OnDemandCap    time.Duration // age at which OnDemandAgeing stops; whole milliseconds, or NoCap
	DurationWindow time.Duration // longest expected duration that counts; whole milliseconds; 0 = expected durations do not count
}

// Default returns the weights of article 1. The additional ageing of on-demand
// requests is capped at 256 s. After this time article 1 lets a queued job pass a
// fresh request.
func Default() Weights {
	return Weights{
		Priority:       1024,
		Ageing:         16,
		Rarity:         500,
		OnDemand:       4096,
		OnDemandAgeing: 32,
		OnDemandCap:    256 * time.Second,
	}
}

// Validate reports the first weight that is out of range. With valid weights no
// score can overflow, whatever the other arguments are.
func (w Weights) Validate() error {
	for _, c := range []struct {
		name            string
		value, min, max int64
		why             string
	}{
		{"priority", w.Priority, 0, maxPoints, ""},
		{"ageing", w.Ageing, 1, maxSlope, "; without ageing nothing bounds how long a job waits"},
		{"rarity", w.Rarity, 0, maxPoints, ""},
		{"on-demand", w.OnDemand, 0, maxPoints, ""},
		{"on-demand-ageing", w.OnDemandAgeing, 0, maxSlope, ""},
	} {
		if c.value < c.min || c.value > c.max {
			return fmt.Errorf("weight %q is %d: set it to a whole number from %d to %d%s", c.name, c.value, c.min, c.max, c.why)
		}
	}
	if d := w.DurationWindow; d < 0 || d > MaxDurationWindow || d%time.Millisecond != 0 {
		return fmt.Errorf("the duration window is %v: set it to whole milliseconds from 0s to %v", d, MaxDurationWindow)
	}
	switch limit := w.OnDemandCap; {
	case limit == NoCap:
		return nil
	case limit < 0 || limit > MaxAge:
		return fmt.Errorf("weight \"on-demand-cap\" is %v: set it to a duration from 0s to %v", limit, MaxAge)
	case limit%time.Millisecond != 0:
		return fmt.Errorf("weight \"on-demand-cap\" is %v: set it to whole milliseconds", limit)
	}
	return nil
}

// PerPriority returns the age that equals one unit of priority. Article 1: 64 s.
func (w Weights) PerPriority() time.Duration {
	return time.Duration(w.Priority) * time.Second / time.Duration(w.Ageing)
}

// savedPerSecond is the number of points for each second that a job is expected to be shorter than
// DurationWindow.
const savedPerSecond = 64

// Brevity returns the term for the expected duration of a job in milliseconds. It lies between 0 and
// the term of a job that takes no time, and is 0 if DurationWindow is 0.
func (w *Weights) Brevity(expectedMS int64) Milli {
	window := w.DurationWindow.Milliseconds()
	return Milli(savedPerSecond * (window - min(max(expectedMS, 0), window)))
}

// Score returns the terms of a job's score, without Brevity. ageMS is the age of the job in
// milliseconds. An age below 0 counts as 0 (a clock went back), and an age above
// MaxAge counts as MaxAge. capacity is the number of registered slots that support
// the job's type, free or taken. A capacity below 1 counts as 1. Score allocates
// nothing.
func (w *Weights) Score(mode dispatcherd.Mode, p dispatcherd.Priority, ageMS int64, capacity int) Terms {
	ageMS = min(max(ageMS, 0), maxAgeMS)
	t := Terms{
		Base:   Milli(w.Priority * int64(p) * 1000),
		Age:    Milli(w.Ageing * ageMS),
		Rarity: Milli(w.Rarity / int64(max(capacity, 1)) * 1000),
	}
	if mode == dispatcherd.OnDemand {
		t.OnDemand = Milli(w.OnDemand*1000 + w.OnDemandAgeing*min(ageMS, w.OnDemandCap.Milliseconds()))
	}
	return t
}
