package trace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxMS bounds every time and length in a trace: ten years, so that no age reaches
// scoring.MaxAge, at which jobs stop ageing.
const maxMS = 3650 * 24 * 3600 * 1000

var errSeconds = errors.New("seconds as digits with at most three decimals, without sign or exponent, at most ten years")

// parseSeconds converts decimal seconds to milliseconds without
// floating-point numbers, so that 0.001 is exactly 1 ms and 2144.25 is
// exactly 2,144,250 ms. Decimals beyond the third must be zero.
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

// formatSeconds is the inverse of parseSeconds. It omits zeros at the end.
func formatSeconds(ms int64) string {
	if ms%1000 == 0 {
		return strconv.FormatInt(ms/1000, 10)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%03d", ms/1000, ms%1000), "0")
}
