package workerproto

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// A worker can decode a job if and only if CheckStored accepts the payload.
func TestStoredPayloadThatIsAcceptedCanBeDecoded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		near := func(bound int, what string) int { return rapid.IntRange(bound-3, bound+3).Draw(rt, what) }
		deep := near(jsontext.MaxDepth, "depth")
		opening, closing := "[", "]"
		if rapid.Bool().Draw(rt, "objects") {
			opening, closing = `{"a":`, "}"
		}
		digits := strings.Repeat("7", near(jsontext.MaxNumber, "digits"))
		if rapid.Bool().Draw(rt, "fraction") {
			digits = digits[:5] + "." + digits[6:]
		}
		before := strings.Repeat(" ", rapid.IntRange(0, 2*jsontext.MaxNumber).Draw(rt, "before"))
		payload := rapid.SampledFrom([]string{
			before + digits, before + `{"x": -` + digits + `}`, `["` + before + digits + digits + `"]`,
			strings.Repeat(opening, deep) + "1" + strings.Repeat(closing, deep),
			"[" + strings.Repeat("[],{},", jsontext.MaxDepth) + "1]",
		}).Draw(rt, "payload")
		f := Job{Execution: Execution{Job: 1, Attempt: 1, Session: "s"}, Type: "x", Payload: []byte(payload)}
		_, err := NewDispatcherDecoder(false).Decode(bytes.TrimSuffix(Append(nil, &f), []byte("\n")))
		require.Equal(rt, err == nil, jsontext.CheckStored(f.Payload) == nil, "%v, %v", err, jsontext.CheckStored(f.Payload))
	})
}
