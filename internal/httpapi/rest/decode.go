package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// Decode reads a JSON object into a struct. It refuses members that the struct does not have, and repeated ones. Absent members
// change nothing. The error does not quote the object.
func Decode(text []byte, into any) error {
	if !utf8.Valid(text) {
		return InvalidRequest.Of("it is not UTF-8")
	}
	if err := json.Unmarshal(text, into); err != nil {
		// A Decoder distinguishes an invalid object from text that follows the object, but copies the text.
		if err = json.NewDecoder(bytes.NewReader(text)).Decode(into); err == nil {
			return InvalidRequest.Of("something follows the JSON object")
		}
		return InvalidRequest.Of(jsonReason(err))
	}
	if err := jsontext.CheckNames(text, Members(reflect.TypeOf(into).Elem())); err != nil {
		return InvalidRequest.Of(err.Error())
	}
	return nil
}

// memberNames are the results of Members by type.
var memberNames sync.Map

// Members returns the names of the JSON members of a struct.
func Members(t reflect.Type) []string {
	names, known := memberNames.Load(t)
	if !known {
		names, _ = memberNames.LoadOrStore(t, membersOf(t))
	}
	return names.([]string)
}

func membersOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, membersOf(f.Type)...)
		case name != "" && name != "-" && !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	return names
}

// jsonReason rewords a decoder's error without quoting the input.
func jsonReason(err error) string {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind):
		found := " cannot be the JSON " + jsontext.Excerpt(kind.Value) + ": write "
		switch field := kind.Field[strings.LastIndex(kind.Field, ".")+1:]; field { // without the name of an embedded struct
		case "":
			return "the body" + found + "a JSON object"
		case "keys":
			return field + found + `one string of words, for example "tenant:42 stripe*3"`
		default:
			return field + found + formOf(kind.Type)
		}
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON (byte %d)", syntax.Offset)
	case errors.Is(err, io.EOF):
		return "the body is empty; it must be a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it is not JSON (it ends too early)"
	}
	return err.Error()
}

// formOf says how a value of a type is written in JSON.
func formOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a string"
}

// CheckRow checks the members that a body and its path have in common. The name in the path belongs to the row, and a body may repeat
// it. version is the version that the row must have: 0 = any, -1 = there must be no row.
func CheckRow(member, inPath string, inBody *string, version int64) error {
	if *inBody != "" && *inBody != inPath {
		return InvalidRequest.Of(Invalid(member, *inBody, fmt.Sprintf("must be %q as in the path, or absent", jsontext.Excerpt(inPath))))
	}
	if *inBody = inPath; version < -1 {
		return InvalidRequest.Of(fmt.Sprintf(
			"version %d: must be the version that was read, for example 3, or absent for any, or -1 for a new row", version))
	}
	return nil
}
