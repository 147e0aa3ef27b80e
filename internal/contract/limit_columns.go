package contract

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Bounds of the columns.
const (
	maxCapacity = 1_000_000_000
	minPer      = 10 * time.Millisecond
	maxPer      = 366 * 24 * time.Hour
)

// CheckLimit returns an error if the table rejects a limit. The error names the column, its value, the rule and an
// example.
func CheckLimit(v *Limit) error {
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
	case v.Scope != ClusterScope && v.Scope != DispatcherScope:
		return fmt.Errorf("scope %q: must be %s or %s, for example %s", v.Scope, ClusterScope, DispatcherScope, DispatcherScope)
	case v.OnRetry != PassOnRetry && v.OnRetry != WaitOnRetry:
		return fmt.Errorf("on_retry %q: must be %s or %s, for example %s", v.OnRetry, PassOnRetry, WaitOnRetry, WaitOnRetry)
	}
	return nil
}

// AssignLimit sets a column of a limit to a text, or to a JSON value. It does not check the limit; [CheckLimit] does. An empty text
// means the default, and none means unlimited.
func AssignLimit(v *Limit, column, text string) (err error) {
	fresh, set := NewLimit(v.Key), text != "" && text != "none" && text != "null"
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
		return fmt.Errorf("column %q: must be one of capacity, rate, per, scope, on_retry", column)
	}
	if err != nil {
		example := map[string]string{"capacity": "2", "rate": "3", "per": "1s"}[column]
		err = fmt.Errorf("%s %q: must have the form of %s, or none (in JSON null)", column, text, example)
	}
	return err
}
