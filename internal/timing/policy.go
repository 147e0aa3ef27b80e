package timing

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// LongestDelay bounds each wait before a retry.
const LongestDelay = 24 * time.Hour

// policyForm is the form of a [Policy]. The domain dispatcherd.backoff has the same rule.
var policyForm = regexp.MustCompile(`^(exponential:` + delayForm +
	`(,([1-9](\.[0-9]{1,2})?|10)(,` + delayForm + `(,(0(\.[0-9]{1,2})?|1))?)?)?` +
	`|fixed:` + delayForm + `|list:` + delayForm + `(,` + delayForm + `){0,31})$`)

// delayForm is the form of a delay. It bounds the delay by LongestDelay.
const delayForm = `([1-9][0-9]{0,6}ms|[1-9][0-9]{0,3}s|[1-9][0-9]{0,2}m|([1-9]|1[0-9]|2[0-4])h)`

// Values of the parts of an exponential policy that are left out.
const (
	usualFactor = 200 // hundredths
	usualMax    = time.Hour
	usualJitter = 50 // hundredths
)

// Policy says how long a job waits after its failure number n = 0, 1, 2 … The zero value is none.
//
//   - exponential:BASE,FACTOR,MAX,JITTER waits BASE·FACTORⁿ, at most MAX. JITTER is the part of the wait that is random, from 0 to 1.
//   - fixed:DELAY waits always equally long.
//   - list:DELAY,DELAY,… waits the delays one after the other, and then always the last one.
type Policy struct {
	base, max      time.Duration
	factor, jitter int64           // hundredths
	delays         []time.Duration // instead of the others
}

// ParsePolicy reads a policy. If it has the right form and MAX is less than BASE, ParsePolicy returns the policy and an error.
func ParsePolicy(text string) (p Policy, err error) {
	if !policyForm.MatchString(text) {
		return p, fmt.Errorf("backoff %.80q must be exponential:BASE[,FACTOR[,MAX[,JITTER]]], fixed:DELAY or list:DELAY[,DELAY…], "+
			"for example exponential:1s,2,1h,0.2; a delay is a whole number with a unit, up to 9999999ms, 9999s, 999m or 24h, "+
			"FACTOR is 1 to 10, JITTER 0 to 1", text)
	}
	kind, list, _ := strings.Cut(text, ":")
	parts := strings.Split(list, ",")
	if kind != "exponential" {
		for _, part := range parts {
			p.delays = append(p.delays, delayOf(part))
		}
		return p, nil
	}
	p = Policy{base: delayOf(parts[0]), factor: usualFactor, jitter: usualJitter}
	p.max = max(p.base, usualMax)
	if len(parts) > 1 {
		p.factor = hundredths(parts[1])
	}
	if len(parts) > 2 {
		p.max = delayOf(parts[2])
	}
	if len(parts) > 3 {
		p.jitter = hundredths(parts[3])
	}
	if p.max < p.base {
		err = fmt.Errorf("backoff %q: MAX %v is less than BASE %v", text, p.max, p.base)
	}
	return p, err
}

// delayOf returns a delay of the right form.
func delayOf(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

func hundredths(text string) int64 {
	f, _ := strconv.ParseFloat(text, 64) // its form is right
	return int64(f*100 + 0.5)
}

// Policy returns b as a policy.
func (b Backoff) Policy() Policy { return Policy{b.Base, b.Max, usualFactor, usualJitter, nil} }

// String describes the policy for people.
func (p *Policy) String() string {
	if len(p.delays) == 0 {
		return fmt.Sprintf("exponential %s ×%v, at most %s", Span(p.base), float64(p.factor)/100, Span(p.max))
	}
	list := make([]string, len(p.delays))
	for i, d := range p.delays {
		list[i] = Span(d)
	}
	if len(list) == 1 {
		return "fixed " + list[0]
	}
	return "list " + strings.Join(list, ", ")
}

// Span writes a duration without zeros at its end.
func Span(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// Delay returns the wait after failure n, in whole milliseconds. It cannot overflow, whatever n is.
func (p *Policy) Delay(n int, rng *rand.Rand) time.Duration {
	if n = max(n, 0); len(p.delays) > 0 {
		return p.delays[min(n, len(p.delays)-1)]
	}
	d := p.base
	for i := 0; i < n && d < p.max && p.factor > 100; i++ {
		d = d * time.Duration(p.factor) / 100
	}
	ms := min(d, p.max).Milliseconds()
	return time.Duration(ms*(100-p.jitter)/100+rng.Int64N(ms*p.jitter/100+1)) * time.Millisecond
}
