package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// maxRows bounds what one file of a trace may hold.
const maxRows = 10_000_000

// row is one line of a CSV file, read field by field. err describes the first
// invalid field and its position. An invalid field reads as the zero value.
type row struct {
	file    string
	columns []string
	fields  []string
	reader  *csv.Reader
	err     error
}

// reject records that field i has a value that is not allowed.
func (r *row) reject(i int, allowed string) {
	if r.err != nil {
		return
	}
	line, column := r.reader.FieldPos(i)
	r.err = fmt.Errorf("%s line %d, column %d: %s is %q, allowed: %s",
		r.file, line, column, r.columns[i], shorten(r.fields[i], 80), allowed)
}

func (r *row) seconds(i int) int64 {
	ms, err := parseSeconds(r.fields[i])
	if err != nil {
		r.reject(i, err.Error())
	}
	return ms
}

func (r *row) integer(i int, low, high int64) int64 {
	n, err := strconv.ParseInt(r.fields[i], 10, 64)
	if err != nil || n < low || n > high {
		r.reject(i, fmt.Sprintf("an integer from %d to %d", low, high))
		return 0
	}
	return n
}

func (r *row) text(i, maxBytes int) string {
	s := r.fields[i]
	if s == "" || len(s) > maxBytes {
		r.reject(i, fmt.Sprintf("1 to %d bytes of text", maxBytes))
		return ""
	}
	return strings.Clone(s) // the reader reuses the line's memory
}

func (r *row) choice(i int, words ...string) int {
	n := slices.Index(words, r.fields[i])
	if n < 0 {
		r.reject(i, strings.Join(words, " or "))
		return 0
	}
	return n
}

// readTable reads a CSV file whose first line is exactly the given columns, and perhaps one that is optional, and
// calls visit for each further line. It stops at the first error, which
// contains its position.
func readTable(path string, columns []string, visit func(*row), optional ...string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	reader := csv.NewReader(f)
	reader.ReuseRecord = true
	reader.FieldsPerRecord = -1 // counted here, for a message that names the columns

	header := strings.Join(columns, ",")
	first, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty, its first line must be %s", path, header)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if all := slices.Concat(columns, optional); slices.Equal(first, all) {
		columns = all
	}
	if !slices.Equal(first, columns) {
		return fmt.Errorf("%s line 1 is %q, it must be %s", path, shorten(strings.Join(first, ","), 200), header)
	}
	r := row{file: path, columns: columns, reader: reader}
	for n := 0; ; n++ {
		r.fields, err = reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		line, _ := reader.FieldPos(0)
		if n == maxRows {
			return fmt.Errorf("%s line %d: more than %d lines are not read", path, line, maxRows)
		}
		if len(r.fields) != len(columns) {
			return fmt.Errorf("%s line %d has %d fields, it must have %d: %s", path, line, len(r.fields), len(columns), header)
		}
		if visit(&r); r.err != nil {
			return r.err
		}
	}
}

// shorten limits the length of a value in an error message.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
