package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Bounds that several flags share.
const (
	Longest       = "3650d" // ten years: sums of such durations do not overflow
	LongestWait   = "1h"    // for one peer or one query; a longer wait would be a hang
	MostHeld      = "1000000"
	MostBytes     = "1024GiB"
	MostInMessage = "256MiB" // more than Postgres stores in a jsonb
	LargestID     = "9223372036854775807"

	ShortestAttempt = "1ms"
	LongestAttempt  = "24d"   // the limit of an attempt is a 32-bit number of milliseconds
	MostAttempts    = "32767" // their number is a smallint
)

// LargestPage is the largest number of rows of one answer about rows of a table.
const LargestPage = 1000

// PageFlags adds the flags that select a page of a list.
func PageFlags(cmd *cobra.Command, q *rest.Query, what string) {
	q.Limit = 100
	Number(cmd.Flags(), &q.Limit, "limit", "1", strconv.Itoa(LargestPage), what+" per page")
	cmd.Flags().TextVar(&q.Cursor, "cursor", q.Cursor, "the next page, as the previous one names it")
}

// listed is a page of a list with the remarks that only some lists have.
type listed[T any] struct {
	contract.Page[T]

	PendingAge *float64 `json:"pending_age_seconds"` // as in [contract.TypePage]
	Incomplete bool     `json:"incomplete"`          // as in [contract.KeyPage]
}

// List completes a command that reads a page of the list with a name, and prints it: row makes a line, and none says that there is
// no line. parameters is a pointer to a struct for [rest.Encode], which contains page.
func List[T any](
	a *Invocation, cmd *cobra.Command, name string, parameters any, page *rest.Query, header string, row func(*T) []any, none string,
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := Page[listed[T]](cmd.Context(), a, "/v1/"+name, parameters)
		if err != nil {
			return err
		}
		if p.PendingAge != nil {
			a.Say("Pending jobs were counted %v ago.", spanOf(*p.PendingAge).Round(time.Second/10))
		}
		if p.Incomplete {
			a.Say("Not all jobs were read: ask the API of the controller for all keys.")
		}
		if page.Cursor != "" {
			none = "" // the previous page had the last ones
		}
		return PrintPage(a, name, p.Page, header, row, none)
	}
	PageFlags(cmd, page, name)
	return cmd
}

// PrintPage prints a page of a list: value as JSON under name, or a line for each element. Then it says how to get the next
// page, or that there is none of what the command lists.
func PrintPage[T any](a *Invocation, name string, page contract.Page[T], header string, row func(*T) []any, none string) error {
	for _, note := range page.Notes {
		a.Say("%s.", note)
	}
	switch {
	case page.Next != "":
		a.Say("There are more: --cursor %s shows the next page.", page.Next)
	case len(page.Items) == 0 && none != "":
		a.Say("%s", none)
	}
	if len(page.Items) == 0 && !a.JSON() {
		return nil // a program that reads the table finds no line, not a header that it may take for a row
	}
	return PrintRows(a, name, page.Items, header, row)
}

// Number adds a flag with a number or a duration and its range, both ends included. The value is the default, which may be outside
// the range: then it means "none".
func Number(flags *pflag.FlagSet, value any, name, least, most, usage string) {
	switch v := value.(type) {
	case *time.Duration:
		flags.Var(Value{Kind: "duration", Parse: func(text string) (err error) {
			if *v, err = contract.ParseDuration(text); err != nil {
				err = errors.New("give a duration such as 250ms, 30s or 1h30m")
			}
			return err
		}, Format: func() string { return contract.Duration(*v).String() }}, name, usage)
	case *int:
		flags.IntVar(v, name, *v, usage)
	case *int64:
		flags.Int64Var(v, name, *v, usage)
	case *uint64:
		flags.Uint64Var(v, name, *v, usage)
	case *float64:
		flags.Float64Var(v, name, *v, usage)
	}
	bind(flags.Lookup(name), least, most)
}

// Size adds a flag with a number of bytes, such as 120MiB, and its range, both ends included. The value is the default.
func Size[T int | int64](flags *pflag.FlagSet, value *T, name, least, most, usage string) {
	flags.Var(Value{Kind: "size", Parse: func(text string) error {
		n, err := parseSize(text)
		*value = T(n)
		return err
	}, Format: func() string { return sizeText(int64(*value)) }}, name, usage)
	bind(flags.Lookup(name), least, most)
}

// bind gives a flag its range.
func bind(f *pflag.Flag, least, most string) {
	f.Value = bounded{f.Value, least, most}
	if f.DefValue = f.Value.String(); f.DefValue == "0s" {
		f.DefValue = "0" // pflag omits the default 0s only for its own type of durations
	}
}

// sizeUnits are the units of sizes, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1}, {"", 1}}

// parseSize reads a number of bytes, with a unit or without.
func parseSize(text string) (int64, error) {
	for _, u := range sizeUnits {
		digits, found := strings.CutSuffix(text, u.name)
		if n, err := strconv.ParseInt(digits, 10, 64); found && err == nil && n <= math.MaxInt64/u.bytes {
			return n * u.bytes, nil
		}
	}
	return 0, errors.New("give a number of bytes, such as 500000, 512KiB or 120MiB")
}

// sizeText returns the shortest text of a number of bytes.
func sizeText(n int64) string {
	for _, u := range sizeUnits[:len(sizeUnits)-2] {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// bounded is the value of a flag with a range. A test checks that every flag with numbers or durations has one.
type bounded struct {
	pflag.Value

	least, most string
}

// Set implements pflag.Value.
func (b bounded) Set(text string) error {
	if err := b.Value.Set(text); err != nil {
		return err
	}
	return Within(b.String(), b.least, b.most)
}

// Within returns an error unless a number or a duration is in a range.
func Within(text, least, most string) error {
	value := magnitude(text)
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return errors.New("give a number")
	case value < magnitude(least):
		return errors.New("must be at least " + least)
	case value > magnitude(most):
		return errors.New("must be at most " + most)
	}
	return nil
}

// magnitude converts the text of a number, a duration or a size to a number, so that texts of one
// kind can be compared. A duration becomes its number of seconds. Values above 2⁵³ are
// rounded, so that a value slightly above the largest id may pass.
func magnitude(text string) float64 {
	if d, err := contract.ParseDuration(text); err == nil {
		return d.Seconds()
	}
	if n, err := parseSize(text); err == nil {
		return float64(n)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return n
}
