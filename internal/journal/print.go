package journal

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// maxShown is how many elements of a list are written out.
const maxShown = 12

// DescribeEvent says on one line what happened.
func DescribeEvent(ev actor.Event) string {
	for _, k := range files.kinds {
		if k.typ == reflect.TypeOf(ev) {
			return strings.TrimSpace(k.name + " " + fields(reflect.ValueOf(ev)))
		}
	}
	return fmt.Sprintf("%T", ev)
}

// DescribeEffect says on one line what is to be done.
func DescribeEffect(e *actor.Effect) string {
	shown := *e
	shown.Kind, shown.Why = 0, actor.Why{}
	return strings.TrimSpace(e.Kind.String() + " " + fields(reflect.ValueOf(shown)))
}

// fields writes the exported fields that are not zero.
func fields(v reflect.Value) string {
	var parts []string
	for f, value := range v.Fields() {
		if f.IsExported() && !value.IsZero() {
			if f.Anonymous || value.Kind() == reflect.Pointer {
				parts = append(parts, fields(reflect.Indirect(value)))
				continue
			}
			if text := word(value); text != "" {
				parts = append(parts, kebab(f.Name)+"="+text)
			}
		}
	}
	return strings.Join(parts, " ")
}

// kebab turns DBNow into db-now.
func kebab(name string) string {
	name = strings.ReplaceAll(name, "IDs", "Ids")
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		begins := i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// word writes a value without spaces around it.
func word(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case contract.Token:
		return hex.EncodeToString(x[:4])
	case contract.Candidate:
		return strconv.FormatInt(int64(x.Key.ID), 10)
	case contract.Won:
		return fmt.Sprintf("%d/%d", x.ID, x.Attempt)
	case contract.Finish:
		return fmt.Sprintf("%d/%d:%v", x.ID, x.Attempt, x.Outcome)
	case []contract.LaneQuery:
		return lanes(x)
	case dispatcherd.Slot:
		return fmt.Sprintf("%d(%s)", x.ID, strings.Join(x.Types, ","))
	case actor.Result:
		return resultWord(&x)
	case time.Duration:
		return x.String()
	case fmt.Stringer:
		return x.String()
	case string:
		if strings.ContainsAny(x, " =\"\n") || x == "" {
			return strconv.Quote(x)
		}
		return x
	}
	switch v.Kind() {
	case reflect.Slice:
		return list(v)
	case reflect.Struct:
		return "{" + fields(v) + "}"
	case reflect.Interface:
		if ev, ok := reflect.TypeAssert[actor.Event](v); ok {
			return "{" + DescribeEvent(ev) + "}"
		}
	}
	return fmt.Sprint(v.Interface())
}

// lanes writes neighbours that are asked for alike as one.
func lanes(all []contract.LaneQuery) string {
	var parts []string
	for i := 0; i < len(all); {
		first, n := all[i], 1
		for i+n < len(all) && all[i+n].Type == first.Type && all[i+n].After == first.After && all[i+n].Before == first.Before && all[i+n].Limit == first.Limit &&
			all[i+n].Priority == first.Priority+dispatcherd.Priority(n) {
			n++
		}
		text := fmt.Sprintf("%s/%d", first.Type, first.Priority)
		if n > 1 {
			text += fmt.Sprintf("-%d", int(first.Priority)+n-1)
		}
		if first.After != (contract.Key{}) {
			text += fmt.Sprintf(" after %d", first.After.ID)
		}
		if first.Before != (contract.Key{}) {
			text += fmt.Sprintf(" before %d", first.Before.ID)
		}
		parts = append(parts, fmt.Sprintf("%s: %d", text, first.Limit))
		i += n
	}
	if more := len(parts) - maxShown; more > 0 {
		parts = append(parts[:maxShown], fmt.Sprintf("… %d more", more))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func list(v reflect.Value) string {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return fmt.Sprintf("(%d bytes)", v.Len())
	}
	var parts []string
	for i := range min(v.Len(), maxShown) {
		parts = append(parts, word(v.Index(i)))
	}
	separator := " "
	if strings.Contains(strings.Join(parts, ""), " ") {
		separator = "; "
	}
	text := strings.Join(parts, separator)
	if more := v.Len() - maxShown; more > 0 {
		text += fmt.Sprintf("%s… %d more", separator, more)
	}
	return "[" + text + "]"
}

func resultWord(r *actor.Result) string {
	how := "failed"
	switch {
	case r.OK:
		how = "ok"
	case r.Returned:
		how = "returned"
	case r.Permanent:
		how = "failed for good"
	}
	return fmt.Sprintf("%d/%d:%s", r.Job, r.Attempt, how)
}

// Mentions reports whether an event or an effect is about a job.
func Mentions(what any, id dispatcherd.JobID) bool { return mentions(reflect.ValueOf(what), id) }

func mentions(v reflect.Value, id dispatcherd.JobID) bool {
	if !v.IsValid() {
		return false
	}
	if v.Type() == reflect.TypeFor[dispatcherd.JobID]() {
		return v.Int() == int64(id)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return mentions(v.Elem(), id)
	case reflect.Struct:
		for f, value := range v.Fields() {
			// A lane's cursor is no word about the job that stands there.
			if f.Type != reflect.TypeFor[contract.LaneQuery]() && f.Name != "After" && mentions(value, id) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if mentions(v.Index(i), id) {
				return true
			}
		}
	}
	return false
}
