package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/scoring"
)

// Value is a flag value with a syntax of its own. It implements pflag.Value.
type Value struct {
	Kind    string             // names the kind of value in help texts
	Parse   func(string) error // stores a value
	Format  func() string      // returns the stored value as Parse takes it
	Choices []string           // all values, for completion; nil = there are others
}

// Set implements pflag.Value.
func (v Value) Set(text string) error { return v.Parse(text) }

// String implements pflag.Value.
func (v Value) String() string { return v.Format() }

// Type implements pflag.Value.
func (v Value) Type() string { return v.Kind }

// Text is any text, of which help, errors and listings contain what show returns. A text that needs a check is checked at its use,
// because pflag prints an error of Set together with the value.
func Text(kind string, value *string, show func(string) string) Value {
	return Value{
		Kind: kind, Parse: func(text string) error { *value = text; return nil }, Format: func() string { return show(*value) },
	}
}

// OneOf is one of some words, in any case.
func OneOf[T ~string](value *T, choices ...T) Value {
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = string(c)
	}
	parse := func(text string) error {
		text = strings.ToLower(text)
		if !slices.Contains(words, text) {
			last := len(words) - 1
			return fmt.Errorf("give %s or %s", strings.Join(words[:last], ", "), words[last])
		}
		*value = T(text)
		return nil
	}
	return Value{Kind: "string", Parse: parse, Format: func() string { return string(*value) }, Choices: words}
}

// AnyOf is a list of words, separated by commas or given one by one.
func AnyOf[T ~string](list *[]T, choices ...T) Value {
	var word T
	v := OneOf(&word, choices...)
	one := v.Parse
	v.Format = func() string { return "" } // by default any
	v.Parse = func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			if err := one(part); err != nil {
				return err
			}
			*list = append(*list, word)
		}
		return nil
	}
	return v
}

// Entries returns the entries of a value, such as pdf=30s,excel=1m. Commas separate them. If the text contains a line break, only
// line breaks do, because an entry of a table in the file may contain any other character.
func Entries(text string) []string {
	if strings.Contains(text, "\n") {
		return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	return strings.Split(text, ",")
}

// Weights are weights without the cap. A value such as priority=1024,ageing=16 changes the weights
// that it names. Further values may change the other weights.
func Weights(w *scoring.Weights) Value {
	keys := []string{"priority", "ageing", "rarity", "on-demand", "on-demand-ageing"}
	fields := []*int64{&w.Priority, &w.Ageing, &w.Rarity, &w.OnDemand, &w.OnDemandAgeing}
	given := map[string]bool{}
	parse := func(text string) error {
		for _, pair := range Entries(text) {
			key, value, is := strings.Cut(strings.TrimSpace(pair), "=")
			key = strings.ReplaceAll(key, "_", "-") // as in the file
			i := slices.Index(keys, key)
			if !is || i < 0 {
				return fmt.Errorf("%q is no weight: give KEY=NUMBER such as priority=1024, with the keys %s", pair, strings.Join(keys, ", "))
			}
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case err != nil:
				return fmt.Errorf("weight %q is %q: give a whole number, such as %s=16", key, value, key)
			case given[key]:
				return fmt.Errorf("weight %q is given twice, the second time as %q: give each key once, such as priority=1024,ageing=16", key, value)
			}
			given[key], *fields[i] = true, n
		}
		if err := w.Validate(); err != nil {
			return fmt.Errorf("%w; an example is priority=1024,ageing=16", err)
		}
		return nil
	}
	format := func() string {
		var pairs []string
		for i, key := range keys {
			pairs = append(pairs, fmt.Sprintf("%s=%d", key, *fields[i]))
		}
		return strings.Join(pairs, ", ")
	}
	return Value{Kind: "weights", Parse: parse, Format: format}
}

// Cap is the age cap of on-demand requests: a duration up to ten years, or none.
func Cap(value *time.Duration) Value {
	parse := func(s string) error {
		if s == "none" {
			*value = scoring.NoCap
			return nil
		}
		d, err := time.ParseDuration(s)
		if err != nil || Within(s, "0s", Longest) != nil {
			return errors.New("give a duration such as 256s, or none")
		}
		*value = d
		return nil
	}
	format := func() string {
		if *value == scoring.NoCap {
			return "none"
		}
		return value.String()
	}
	return Value{Kind: "age", Parse: parse, Format: format}
}
