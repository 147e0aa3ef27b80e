package trace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxMS bounds every time and length in a trace: ten years, so that no age reaches
// scoring.MaxAge, at which jobs stop growing older.
const maxMS = 3650 * 24 * 3600 * 1000

var errSeconds = errors.New("seconds as digits with at most three decimals, without sign or exponent, at most ten years")

// parseSeconds turns decimal seconds into milliseconds without ever passing
// through a binary fraction, so that 0.001 is one millisecond and 2144.25 is
// 2,144,250. Decimals beyond the third must be zero.
func parseSeconds(s string) (ms int64, err error) {
	whole, frac, dotted := strings.Cut(s, ".")
	if !digits(whole) || (dotted && !digits(frac)) {
		return 0, errSeconds
	}
	if len(frac) > 3 {
		if strings.Trim(frac[3:], "0") != "" {
			return 0, errSeconds
		}
		frac = frac[:3]
	}
	ms, err = strconv.ParseInt(whole+(frac + "000")[:3], 10, 64)
	if err != nil || ms > maxMS {
		return 0, errSeconds
	}
	return ms, nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// formatSeconds is the inverse of parseSeconds, with no needless decimals.
func formatSeconds(ms int64) string {
	if ms%1000 == 0 {
		return strconv.FormatInt(ms/1000, 10)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%03d", ms/1000, ms%1000), "0")
}
