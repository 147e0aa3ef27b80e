package jsontext

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scan reads one value and returns where it ends.
func scan(text string, rules rules) (end int, fault Fault) {
	s := Scanner{text: []byte(text), rules: rules}
	s.Skip()
	return s.Offset(), s.Fault()
}

func TestValueEndsBeforeWhatFollows(t *testing.T) {
	for _, value := range []string{
		`{}`, `[]`, `null`, `true`, `false`, `0`, `-0.5E+12`, `12`, `""`, `"\u00e9\\\""`, ` {"a":[1,{"b":"}"}] , "c" : null }`,
	} {
		for _, rest := range []string{"", ",", "}", " ]", "\n"} {
			for _, rules := range []rules{anyJSON, storable, sendable} {
				end, fault := scan(value+rest, rules)
				require.Equal(t, Fault{}, fault, value)
				require.Equal(t, len(value), end, value)
			}
		}
	}
}

func TestScannerStopsAtTheFirstMalformedByte(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth)
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
		`["a|\q"]`:       malformedEscape,
		`["a|\u12g4"]`:   malformedEscape,
		`["a|\`:          malformedEscape,
		`["a|`:           "a string without its end",
		`[|tru]`:         "a malformed word",
		`[|nul`:          "a malformed word",
		`[-|.5]`:         malformedNumber,
		`[0.|e5]`:        malformedNumber,
		`[1e+|]`:         malformedNumber,
		`[01|]`:          malformedNumber,
		deep + `|[]`:     tooDeep,
		deep + `|{"a":1`: tooDeep,
	} {
		before, after, _ := strings.Cut(text, "|")
		end, fault := scan(before+after, anyJSON)
		require.Equal(t, Fault{want, true}, fault, text)
		require.Equal(t, len(before), end, text)
	}
}

func TestRejectedValueIsReadToItsEnd(t *testing.T) {
	for text, want := range map[string]string{
		`["\u0000",1]`:                   nullCharacter,
		`"\udc00x"`:                      halfSurrogate,
		`"\ud800\u0041"`:                 halfSurrogate,
		`{"a":1e12345}`:                  longNumber,
		`["\u0000",1e12345]`:             nullCharacter,
		strings.Repeat("9", MaxNumber+1): longNumber,
	} {
		end, fault := scan(text, storable)
		require.Equal(t, Fault{want, false}, fault, text)
		require.Equal(t, len(text), end, text)
		_, fault = scan(text, anyJSON)
		require.Equal(t, Fault{}, fault, text)
	}
	_, fault := scan(`["\u0000",]`, storable)
	require.True(t, fault.Malformed, "a malformed byte takes precedence")
}

func TestMembersAndElementsAreRead(t *testing.T) {
	s := NewScanner([]byte(` { "a" : [ "x\n" , "\ud800" ] , "\u0062" : {} , "c" : [] } `))
	var got []string
	for more := s.Begin('{'); more; more = s.More('}') {
		got = append(got, string(s.Name()))
		if s.Peek() == '{' {
			require.False(t, s.Begin('{'))
			continue
		}
		for more := s.Begin('['); more; more = s.More(']') {
			require.EqualValues(t, '"', s.Peek())
			got = append(got, string(s.String()))
		}
	}
	s.End()
	require.Equal(t, Fault{}, s.Fault())
	require.Equal(t, []string{"a", "x\n", "\ufffd", "b", "c"}, got)
}

func TestScannerReturnsZeroValuesOnceItHasStopped(t *testing.T) {
	s := NewScanner([]byte(`{1}`))
	require.True(t, s.Begin('{'))
	require.Nil(t, s.Name())
	require.True(t, s.Malformed())
	require.Zero(t, s.Peek())
	require.False(t, s.Begin('1'))
	require.False(t, s.More('}'))
	require.Nil(t, s.Payload())
	require.Equal(t, 1, s.Offset())
	require.Equal(t, Fault{"a member's name is missing", true}, s.Fault())
}

// Value accepts the same grammar as encoding/json, except for the depth.
func FuzzValue(f *testing.F) {
	f.Add([]byte(`{"a":[1,-2.5e+3,"\u00e9\\"],"b":{}} x`))
	f.Add([]byte(`[[]`))
	f.Add([]byte("\t\"\\ud800\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := NewScanner(text)
		s.Skip()
		end, fault := s.Offset(), s.Fault()
		require.LessOrEqual(t, end, len(text))
		valid := json.Valid(text)
		if fault.Malformed {
			require.False(t, valid && fault.What != tooDeep, "rejected %q: %v", text, fault)
			return
		}
		require.Empty(t, fault.What)
		require.True(t, json.Valid(text[:end]), "accepted %q of %q", text[:end], text)
		s.End()
		require.Equal(t, valid, !s.Malformed(), "%q", text)
		for _, rules := range []rules{storable, sendable} {
			storedEnd, fault := scan(string(text), rules)
			require.False(t, fault.Malformed)
			require.Equal(t, end, storedEnd)
		}
	})
}
