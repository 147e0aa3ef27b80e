package jsontext

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var allowed = []string{"type", "payload", "in"}

func TestUnknownAndRepeatedNamesAreRejected(t *testing.T) {
	for object, want := range map[string]string{
		`null`: "",
		`{}`:   "",
		"{ \"type\" : \"type\",\t\"payload\" : {\"type\":1,\"type\":2,\"x\":[{\"in\":\"in\"}]}, \"in\":[\"type\",\"type\"] }": "",
		`{"type":"\"in\":1,\"in\":2","payload":"\\","in":[]}`:                                                                 "",
		`{"type":1,"Type":2}`:                `there is no field "Type"; the fields are type, payload, in`,
		`{"\u0074ype":1}`:                    `there is no field "\\u0074ype"; the fields are type, payload, in`,
		`{"":1}`:                             `there is no field ""; the fields are type, payload, in`,
		`{"type":1,"type":1}`:                "type is given twice",
		`{"in":{"a":[{}]},"type":[],"in":1}`: "in is given twice",
		`{"payload":"\\","payload":"\\\""}`:  "payload is given twice",
	} {
		require.True(t, json.Valid([]byte(object)), object)
		err := CheckNames([]byte(object), allowed, false)
		if want == "" {
			require.NoError(t, err, object)
		} else {
			require.EqualError(t, err, want, object)
		}
	}
}

func TestLongNameIsShortenedInTheError(t *testing.T) {
	err := CheckNames([]byte(`{"`+strings.Repeat("é", 1<<20)+`":1}`), allowed, false)
	require.ErrorContains(t, err, `there is no field "ééé`)
	require.Less(t, len(err.Error()), 200)
	require.Equal(t, strings.Repeat("x", excerpt), Excerpt(strings.Repeat("x", excerpt)))
	require.Equal(t, strings.Repeat("é", 31)+"…", Excerpt("x" + strings.Repeat("é", 100))[1:], "no half character")
}

func TestOnlyNamesOfTheOuterObjectAreChecked(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		given := rapid.SliceOfN(rapid.SampledFrom(allowed), 0, 4).Draw(rt, "given")
		value := rapid.OneOf(rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.SliceOf(rapid.String()), func(s []string) any { return s }),
			rapid.Map(rapid.MapOf(rapid.String(), rapid.String()), func(m map[string]string) any { return m }))
		var object strings.Builder
		seen, twice := map[string]bool{}, false
		object.WriteByte('{')
		for i, name := range given {
			if i > 0 {
				object.WriteByte(',')
			}
			text, err := json.Marshal(value.Draw(rt, name))
			require.NoError(rt, err)
			object.WriteString(`"` + name + `":` + string(text))
			twice = twice || seen[name]
			seen[name] = true
		}
		object.WriteByte('}')
		err := CheckNames([]byte(object.String()), allowed, false)
		require.Equal(rt, twice, err != nil, "%s: %v", object.String(), err)
	})
}
