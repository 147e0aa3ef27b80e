package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/dispatcherd/dispatcherd"
)

// Console contains the streams of one invocation. Commands use no other streams, so tests run
// the whole program in process.
type Console struct {
	In       io.Reader
	Out, Err io.Writer // data; messages
	Format   string    // of the data, --output: table, json or jsonl; "" = table
}

// Say writes a message, separate from the data.
func (c *Console) Say(format string, args ...any) {
	fmt.Fprintln(c.Err, Printable(fmt.Sprintf(format, args...)))
}

// schemaVersion is part of every JSON output. It grows when a field changes its meaning or is
// removed, not when a field is added.
const schemaVersion = 1

// JSON reports whether the data is written as JSON.
func (c *Console) JSON() bool { return strings.HasPrefix(c.Format, "json") }

// PrintJSON writes {"schema_version": …, name: value} to the data stream. With --output jsonl
// it writes value alone on one line, or each element of a list.
func (c *Console) PrintJSON(name string, value any) error {
	if c.Format == "jsonl" {
		list := reflect.ValueOf(value)
		if list.Kind() != reflect.Slice {
			return c.PrintValue(value)
		}
		for _, v := range list.Seq2() {
			if err := c.PrintValue(v.Interface()); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := json.MarshalIndent(value, "  ", "  ")
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = fmt.Fprintf(c.Out, "{\n  \"schema_version\": %d,\n  %q: %s\n}\n", schemaVersion, name, replaceInvisible(string(text), jsonEscape))
	return err
}

// PrintValue writes a value to the data stream as JSON on one line, in every format.
func (c *Console) PrintValue(value any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = io.WriteString(c.Out, replaceInvisible(text.String(), jsonEscape))
	return err
}

// PrintLine writes a result in the format of --output: value as JSON under name, or a line of text.
func (c *Console) PrintLine(name string, value any, format string, args ...any) error {
	if c.JSON() {
		return c.PrintJSON(name, value)
	}
	_, err := fmt.Fprintln(c.Out, Printable(fmt.Sprintf(format, args...)))
	return err
}

// Add adds a fact, which is a line of the output of a command about one object.
type Add func(fact, format string, args ...any)

// Some adds the value of a fact, unless it is zero or a nil pointer.
func (add Add) Some(fact string, value any) {
	if v := reflect.Indirect(reflect.ValueOf(value)); v.IsValid() && !v.IsZero() {
		add(fact, "%v", v)
	}
}

// Fields adds a fact for each field of a struct, named like its member in JSON. It leaves out the fields that JSON leaves out, and
// those that are structs or lists.
func (add Add) Fields(object any) {
	for field, v := range reflect.ValueOf(object).Fields() {
		name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
		fact, inMillis := strings.CutSuffix(name, "_ms")
		fact = strings.ReplaceAll(fact, "_", " ")
		if v = reflect.Indirect(v); !v.IsValid() || name == "-" || option != "" && v.IsZero() {
			continue
		}
		switch x := v.Interface().(type) {
		case time.Time:
			add(fact, "%s", Stamp(x))
		case json.RawMessage:
			add(fact, "%s", x)
		default:
			switch {
			case field.Anonymous:
				add.Fields(x)
			case inMillis:
				add(fact, "%v", time.Duration(v.Int())*time.Millisecond)
			case v.Kind() != reflect.Struct && v.Kind() != reflect.Slice:
				add(fact, "%v", x)
			}
		}
	}
}

// PrintFacts writes a result in the format of --output: value as JSON under name, or the facts that
// the callback adds, one per line.
func PrintFacts[T any](a *Invocation, name string, value *T, facts func(Add, *T)) error {
	if a.JSON() {
		return a.PrintJSON(name, value)
	}
	tw := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	facts(func(fact, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", fact, OneLine(fmt.Sprintf(format, args...)))
	}, value)
	return tw.Flush()
}

// When returns a text if a condition holds, else "".
func When(holds bool, format string, args ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// PrintRows writes a result in the format of --output: a list as JSON under name, or a table with a line for each element. header
// names the columns, separated by ", ". A list without elements is [] in JSON, never null.
func PrintRows[T any](a *Invocation, name string, list []T, header string, row func(*T) []any) error {
	if a.JSON() {
		return a.PrintJSON(name, append([]T{}, list...))
	}
	rows := make([][]any, len(list))
	for i := range list {
		rows[i] = row(&list[i])
	}
	return writeTable(a.Out, header, rows)
}

// writeTable writes aligned columns under a header in capitals. An empty cell is shown as a dash.
func writeTable(w io.Writer, header string, rows [][]any) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ReplaceAll(strings.ToUpper(header), ", ", "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = OneLine(fmt.Sprint(cell))
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// Wrap writes a line, and breaks it where it is longer than a width. Further lines begin below the text that follows the last wide gap.
func Wrap(w io.Writer, line string, width int) {
	indent := ""
	if at := strings.LastIndex(line, "  "); at >= 0 {
		indent = strings.Repeat(" ", at+len("  "))
	}
	for len(line) > width {
		at := strings.LastIndexByte(line[:width+1], ' ')
		if at <= len(indent) {
			break // one word
		}
		fmt.Fprintln(w, line[:at])
		line = indent + line[at+1:]
	}
	fmt.Fprintln(w, line)
}

// Stamp formats a time for a table, in UTC. Times with the same number of digits can be compared.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Counted returns a number with its noun: "1 job", "2 jobs".
func Counted[N int | int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// OneLine returns text for one cell of a table: white space is replaced by blanks.
func OneLine(cell string) string {
	if cell == "" {
		return "-"
	}
	return Printable(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, cell))
}

// Printable replaces characters that are not displayed or control the terminal by their code
// points, except line breaks and tabs. All output passes it, because types, names and errors
// come from other programs.
func Printable(text string) string {
	return replaceInvisible(text, func(r rune) string { return fmt.Sprintf("<%U>", r) })
}

// jsonEscape returns a character as it may be written in a string of JSON.
func jsonEscape(r rune) string {
	if r1, r2 := utf16.EncodeRune(r); r1 != unicode.ReplacementChar {
		return fmt.Sprintf(`\u%04x\u%04x`, r1, r2)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

func replaceInvisible(text string, replacement func(rune) string) string {
	var out strings.Builder
	for _, r := range text {
		if dispatcherd.Invisible(r) && r != '\n' && r != '\t' {
			out.WriteString(replacement(r))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}
