// Package limits checks limits of keys and reads their columns. It is pure.
package limits

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Bounds of the columns.
const (
	maxCapacity = 1_000_000_000
	minPer      = 10 * time.Millisecond
	maxPer      = 366 * 24 * time.Hour
)

// Check returns an error if the table rejects a limit. The error names the column, its value, the rule and an
// example.
func Check(v *contract.Limit) error {
	per := time.Duration(v.Per)
	switch {
	case v.Key != "*" && !permits.IsKey(strings.TrimSuffix(v.Key, "*")):
		return fmt.Errorf(
			"key %q: must be a key, or a prefix and *; a key has 1 to 128 characters without blanks, control characters and *, for example %q",
			v.Key,
			"tenant:*",
		)
	case v.Capacity != nil && (*v.Capacity < 0 || *v.Capacity > maxCapacity):
		return fmt.Errorf("capacity %d: must be from 0 (paused) to %d, or unlimited (none, in JSON null), for example 2",
			*v.Capacity, maxCapacity)
	case v.Rate < 0 || v.Rate > maxCapacity:
		return fmt.Errorf("rate %d: must be from 1 to %d, or unlimited (none, in JSON null), for example 3", v.Rate, maxCapacity)
	case v.Rate > 0 && per == 0:
		return fmt.Errorf("rate %d: needs per, the length of the window, for example per=1s", v.Rate)
	case v.Rate == 0 && per != 0:
		return fmt.Errorf("per %v: needs rate, the cost that may start within it, for example rate=3", per)
	case per != 0 && (per < minPer || per > maxPer):
		return fmt.Errorf("per %v: must be from %v to %v, for example 1s", per, minPer, maxPer)
	case v.Scope != contract.ClusterScope && v.Scope != contract.DispatcherScope:
		return fmt.Errorf("scope %q: must be %s or %s, for example %s", v.Scope, contract.ClusterScope,
			contract.DispatcherScope, contract.DispatcherScope)
	case v.OnRetry != contract.PassOnRetry && v.OnRetry != contract.WaitOnRetry:
		return fmt.Errorf("on_retry %q: must be %s or %s, for example %s", v.OnRetry, contract.PassOnRetry,
			contract.WaitOnRetry, contract.WaitOnRetry)
	}
	return nil
}

// examples are the columns that users set, in the order of the table, with an example of each.
var examples = []struct{ name, example string }{
	{"capacity", "2"}, {"rate", "3"}, {"per", "1s"}, {"scope", contract.DispatcherScope}, {"on_retry", contract.WaitOnRetry},
}

// Columns returns the names of the columns that users set.
func Columns() []string {
	names := make([]string, len(examples))
	for i, e := range examples {
		names[i] = e.name
	}
	return names
}

// Assign sets a column to a text, or to a JSON value. It does not check the limit; [Check] does. An empty text means the
// default, and none means unlimited.
func Assign(v *contract.Limit, column, text string) (err error) {
	fresh, set := contract.NewLimit(v.Key), text != "" && text != "none" && text != "null"
	var n *int
	if set && (column == "capacity" || column == "rate") {
		n = new(int)
		*n, err = strconv.Atoi(text)
	}
	switch column {
	case "capacity":
		if v.Capacity = n; text == "" {
			v.Capacity = fresh.Capacity
		}
	case "rate":
		if n == nil {
			n = new(0)
		} else if *n == 0 && err == nil { // Check takes it for unlimited
			return fmt.Errorf("rate 0: must be from 1 to %d, or unlimited (none, in JSON null), for example 3; capacity 0 pauses the key",
				maxCapacity)
		}
		v.Rate = *n
	case "per":
		if v.Per = 0; set {
			err = v.Per.UnmarshalText([]byte(text))
		}
	case "scope":
		v.Scope = cmp.Or(text, fresh.Scope)
	case "on_retry":
		v.OnRetry = cmp.Or(text, fresh.OnRetry)
	default:
		return fmt.Errorf("column %q: must be one of %s", column, strings.Join(Columns(), ", "))
	}
	if err != nil {
		for _, e := range examples {
			if e.name == column {
				return fmt.Errorf("%s %q: must have the form of %s, or none (in JSON null)", column, text, e.example)
			}
		}
	}
	return nil
}
