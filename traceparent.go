package dispatcherd

import (
	"fmt"
	"regexp"
)

// The form of a trace context, and that of one whose trace or parent is zero, which means none.
var (
	traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	untraced    = regexp.MustCompile(`^00-(0{32}|.{32}-0{16})-`)
)

// CheckTraceparent returns why a text is no trace context of version 00 as the W3C recommendation Trace Context writes it,
// nil if it is one. The domain dispatcherd.traceparent has the same rule.
func CheckTraceparent(text string) error {
	if !traceparent.MatchString(text) || untraced.MatchString(text) {
		return fmt.Errorf("traceparent %.60q must be 00-TRACE-PARENT-FLAGS with 32, 16 and 2 hexadecimal digits in lower case, "+
			"TRACE and PARENT not zero", text)
	}
	return nil
}
