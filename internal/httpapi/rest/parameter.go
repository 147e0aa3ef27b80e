package rest

import (
	"cmp"
	"encoding"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// Invalid says what is wrong with a value, for the detail of a problem.
func Invalid(name, value, rule string) string {
	return fmt.Sprintf("%s %q: %s", name, jsontext.Excerpt(value), rule)
}

// eachParameter calls f for the parameters in the fields of a struct.
func eachParameter(v reflect.Value, f func(reflect.StructField, reflect.Value) error) error {
	for i := range v.NumField() {
		field, err := v.Type().Field(i), error(nil)
		switch {
		case field.Anonymous:
			err = eachParameter(v.Field(i), f)
		case field.Tag.Get("param") != "":
			err = f(field, v.Field(i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Parameters returns the names of the query parameters of a call.
func (r *Route) Parameters() (names []string) {
	if r.Input == nil {
		return nil
	}
	_ = eachParameter(reflect.New(r.Input).Elem(), func(f reflect.StructField, _ reflect.Value) error {
		if name := f.Tag.Get("param"); !strings.Contains(r.Path, "{"+name+"}") {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// Encode returns the query of parameters in a struct, or in the struct of a pointer. Zero values are left out.
func Encode(parameters any) url.Values {
	query := url.Values{}
	_ = eachParameter(reflect.Indirect(reflect.ValueOf(parameters)), func(f reflect.StructField, v reflect.Value) error {
		if v.IsZero() {
			return nil
		}
		text := fmt.Sprint(reflect.Indirect(v))
		if m, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
			encoded, _ := m.MarshalText() // fails only for years of more than four digits, which are refused
			text = string(encoded)
		} else if v.Kind() == reflect.Slice {
			text = strings.ReplaceAll(strings.Trim(text, "[]"), " ", ",")
		}
		query.Set(f.Tag.Get("param"), text)
		return nil
	})
	return query
}

// isText reports whether Postgres can store a text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// setParameter sets a field to the text of a parameter. It returns the rule that the text breaks, or "". An empty text stands for the
// tag default. Numbers have tags minimum and maximum. Texts may have a tag enum, which lists the values with commas; an array is also
// separated by commas. Of other types, the tag rule says what they look like.
func setParameter(v reflect.Value, tag reflect.StructTag, text string) (rule string) {
	text = cmp.Or(text, tag.Get("default"))
	if text == "" {
		return ""
	}
	if !isText(text) {
		return "must be UTF-8 without U+0000"
	}
	var err error
	enum := tag.Get("enum")
	if parser, is := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); is {
		if err = parser.UnmarshalText([]byte(text)); err != nil {
			return textRule(parser)
		}
		return ""
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return setParameter(v.Elem(), tag, text)
	case reflect.Bool:
		choice, err := strconv.ParseBool(text)
		if v.SetBool(choice); err != nil {
			return "must be true or false"
		}
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		least, most := tag.Get("minimum"), tag.Get("maximum")
		low, noLow := strconv.ParseInt(least, 10, 64)
		high, noHigh := strconv.ParseInt(most, 10, 64)
		if v.SetInt(n); err != nil || noLow == nil && n < low || noHigh == nil && n > high {
			return strings.TrimSuffix("must be a whole number from "+least+" to "+most, " to ")
		}
	case reflect.Slice:
		for part := range strings.SplitSeq(text, ",") {
			element := reflect.New(v.Type().Elem()).Elem()
			if rule := setParameter(element, tag, cmp.Or(part, " ")); rule != "" {
				return rule
			}
			v.Set(reflect.Append(v, element))
		}
	default:
		v.SetString(text)
		if enum != "" && !slices.Contains(strings.Split(enum, ","), text) {
			return "must be one of " + strings.ReplaceAll(enum, ",", ", ")
		}
	}
	return ""
}

// textRule says what a text of a type looks like.
func textRule(parser encoding.TextUnmarshaler) string {
	const instant = "must be a time in RFC 3339, such as 2026-01-31T08:00:00Z (%2B for + in a URL)"
	switch parser.(type) {
	case *time.Time:
		return instant
	case *contract.Moment:
		return instant + ", or an age such as 90m"
	}
	return cursorRule
}
