package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// schemaVersion is part of every JSON output and grows when a field changes its
// meaning or goes away; new fields may come without.
const schemaVersion = 1

// format is the --output setting; the zero value is a table.
type format struct{ json bool }

// Set takes table or json.
func (f *format) Set(s string) error {
	switch s {
	case "table", "json":
		f.json = s == "json"
		return nil
	}
	return errors.New("it must be table or json")
}

// String returns the name that Set takes.
func (f *format) String() string {
	if f.json {
		return "json"
	}
	return "table"
}

// Type names the kind of value in help texts.
func (f *format) Type() string { return "format" }

// printJSON writes {"schema_version": …, name: value} to the data stream.
func (a *app) printJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "  ", "  ")
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = fmt.Fprintf(a.out, "{\n  \"schema_version\": %d,\n  %q: %s\n}\n", schemaVersion, name, text)
	return err
}

// printRows writes one result in the form the user asked for: value as JSON
// under name, or rows as a table.
func (a *app) printRows(name string, value any, header []string, rows [][]string) error {
	if a.format.json {
		return a.printJSON(name, value)
	}
	return a.printTable(header, rows)
}

// printTable writes aligned columns under a header in capitals; an empty cell
// shows as a dash.
func (a *app) printTable(header []string, rows [][]string) error {
	return writeTable(a.out, header, rows)
}

func writeTable(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for j, cell := range row {
			cells[j] = oneLine(cell)
			if i == 0 {
				cells[j] = strings.ToUpper(cell)
			}
		}
		if _, err := fmt.Fprintln(tw, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// counted is a number with its noun: "1 job", "2 jobs".
func counted(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// oneLine keeps a cell from breaking the table, or the terminal.
func oneLine(cell string) string {
	if cell == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, cell)
}
