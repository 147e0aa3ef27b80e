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
	"time"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// ErrMore says that a text continues after its JSON object.
var ErrMore = errors.New("something follows the JSON object")

// Read reads a JSON object into a struct. It refuses members that the struct does not have, and repeated ones. Absent members
// change nothing. The error does not quote the object.
func Read(text []byte, into any) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	if err := json.Unmarshal(text, into); err != nil {
		// A Decoder distinguishes an invalid object from text that follows the object, but copies the text.
		if err = json.NewDecoder(bytes.NewReader(text)).Decode(into); err == nil {
			return ErrMore
		}
		return errors.New(jsonReason(err))
	}
	return jsontext.CheckNames(text, Members(reflect.TypeOf(into).Elem()), false)
}

// Decode is Read for a body.
func Decode(text []byte, into any) error {
	if err := Read(text, into); err != nil {
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
	var when *time.ParseError
	switch {
	case errors.As(err, &kind):
		field := kind.Field[strings.LastIndex(kind.Field, ".")+1:] // without the name of an embedded struct
		form := formOf(kind.Type)
		switch {
		case field == "":
			field, form = "it", "a JSON object"
		case field == "keys":
			form = `one string of words, for example "tenant:42 stripe*3"`
		case strings.HasSuffix(field, "_ms"):
			form = "a whole number from 1 to 2147483647"
		}
		return field + " cannot be the JSON " + jsontext.Excerpt(kind.Value) + ": write " + form
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON (byte %d)", syntax.Offset)
	case errors.Is(err, io.EOF):
		return "it is empty: write a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it is not JSON (it ends too early)"
	case errors.As(err, &when), strings.HasPrefix(err.Error(), "Time."): // of the method that reads a time
		return "a time is a text in RFC 3339, such as \"2026-01-31T08:00:00Z\""
	}
	return err.Error()
}

// formOf says how a value of a type is written in JSON.
func formOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
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
