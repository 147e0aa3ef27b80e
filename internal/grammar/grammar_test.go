package grammar

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/carry"
)

func TestAValueEndsBeforeWhatFollows(t *testing.T) {
	for _, value := range []string{
		`{}`, `[]`, `null`, `true`, `false`, `0`, `-0.5E+12`, `12`, `""`, `"\u00e9\\\""`, ` {"a":[1,{"b":"}"}] , "c" : null }`,
	} {
		for _, behind := range []string{"", ",", "}", " ]", "\n"} {
			end, fault := Value([]byte(value+behind), 0)
			require.Equal(t, Fault{}, fault, value)
			require.Equal(t, len(value), end, value)
			end, fault = Payload([]byte("{:"+value+behind), 2)
			require.Equal(t, Fault{}, fault, value)
			require.Equal(t, len(value)+2, end, value)
		}
	}
}

func TestAMalformedValueIsToldByItsFirstBadByte(t *testing.T) {
	deep := strings.Repeat("[", carry.MaxDepth)
	for text, want := range map[string]string{
		``:               "a value is missing",
		` |]`:            "a value is missing",
		`[1,|]`:          "a value is missing",
		`[1 |2]`:         "a comma or the end is missing",
		`[{"a":1}|`:      "a comma or the end is missing",
		`{|1:1}`:         "a member's name is missing",
		`{"a":1,|}`:      "a member's name is missing",
		`{"a" |1}`:       "a colon is missing",
		"{\"a|\n\" :1}":  "a control character in a string",
		`["a|\q"]`:       "a malformed escape",
		`["a|\u12g4"]`:   "a malformed escape",
		`["a|\`:          "a malformed escape",
		`["a|`:           "a string without its end",
		`[|tru]`:         "a malformed word",
		`[|nul`:          "a malformed word",
		`[-|.5]`:         "a malformed number",
		`[0.|e5]`:        "a malformed number",
		`[1e+|]`:         "a malformed number",
		`[01|]`:          "a malformed number",
		deep + `|[]`:     "nested too deep",
		deep + `|{"a":1`: "nested too deep",
	} {
		before, after, _ := strings.Cut(text, "|")
		end, fault := Value([]byte(before+after), 0)
		require.Equal(t, Fault{want, true}, fault, text)
		require.Equal(t, len(before), end, text)
	}
}

func TestWhatCannotBeKeptIsReadToItsEnd(t *testing.T) {
	for text, want := range map[string]string{
		`["\u0000",1]`:                         `\u0000 in a payload cannot be kept`,
		`"\udc00x"`:                            "half a surrogate pair in a payload cannot be kept",
		`"\ud800\u0041"`:                       "half a surrogate pair in a payload cannot be kept",
		`{"a":1e12345}`:                        "a number in a payload is too large to be kept",
		`["\u0000",1e12345]`:                   `\u0000 in a payload cannot be kept`,
		strings.Repeat("9", carry.MaxNumber+1): "a number in a payload is too large to be kept",
	} {
		end, fault := Payload([]byte(text), 0)
		require.Equal(t, Fault{want, false}, fault, text)
		require.Equal(t, len(text), end, text)
		_, fault = Value([]byte(text), 0)
		require.Equal(t, Fault{}, fault, text)
	}
	_, fault := Payload([]byte(`["\u0000",]`), 0)
	require.True(t, fault.Malformed, "that counts for more")
}

func TestAStringSaysWhetherItIsEscaped(t *testing.T) {
	for text, want := range map[string]bool{`""`: false, `"pdf"`: false, `"a\nb"`: true, `"123456789\\"`: true} {
		end, escaped, fault := String([]byte(text+`"`), 0)
		require.Equal(t, Fault{}, fault)
		require.Equal(t, len(text), end)
		require.Equal(t, want, escaped, text)
	}
}

// What is read is a value for encoding/json, too, and the whole text is one if nothing
// follows; what is malformed is so there, but for its depth.
func FuzzValue(f *testing.F) {
	f.Add([]byte(`{"a":[1,-2.5e+3,"\u00e9\\"],"b":{}} x`))
	f.Add([]byte(`[[]`))
	f.Add([]byte("\t\"\\ud800\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		end, fault := Value(text, 0)
		require.LessOrEqual(t, end, len(text))
		valid := json.Valid(text)
		if fault.Malformed {
			require.False(t, valid && !strings.Contains(fault.What, "too deep"), "refused %q: %v", text, fault)
			return
		}
		require.Empty(t, fault.What)
		require.True(t, json.Valid(text[:end]), "accepted %q of %q", text[:end], text)
		require.Equal(t, valid, Space(text, end) == len(text), "%q", text)
		kept, unfit := Payload(text, 0)
		require.False(t, unfit.Malformed)
		require.Equal(t, end, kept)
	})
}
