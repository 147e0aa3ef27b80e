package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hbollon/go-edlib"
	"github.com/pelletier/go-toml/v2"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

const (
	defaultConfigFile = "/etc/dispatcherd/config.toml"
	maxConfigSize     = 1 << 20 // bytes
)

// configFile is a configuration file, flattened: the table [keep] with the key
// done is the setting keep-done.
type configFile struct {
	path   string
	values map[string]string // by the name of the setting, in the form its flag takes
}

// readConfig reads the file. If asked is false, the user has not named the
// file, and it may be missing.
func readConfig(path string, asked bool) (configFile, error) {
	file := configFile{path: path, values: map[string]string{}}
	if path == "" {
		return file, nil
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return file, nil
	case err != nil:
		return file, exit.Usagef("reading the configuration file: %w", err)
	case len(text) > maxConfigSize:
		return file, exit.Usagef("the configuration file %s has %d bytes; at most %d are read", path, len(text), maxConfigSize)
	}
	return file, file.parse(text)
}

// parse adds the settings of a text.
func (c configFile) parse(text []byte) error {
	var tree map[string]any
	if err := unmarshalTOML(text, &tree); err != nil {
		return exit.Usagef("the configuration file %s is not TOML: %w", c.path, err)
	}
	return c.flatten("", tree)
}

// unmarshalTOML reads a text. Its error says where in the text the mistake is.
func unmarshalTOML(text []byte, into any) error {
	err := toml.Unmarshal(text, into)
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := decode.Position()
		err = fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	return err
}

// flatten copies a table's keys in order, so that the first error is always the same.
func (c configFile) flatten(prefix string, table map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(table)) {
		name := prefix + strings.ReplaceAll(key, "_", "-")
		inner, isTable := table[key].(map[string]any)
		if isTable && !slices.Contains(tableSettings, name) {
			if err := c.flatten(name+"-", inner); err != nil {
				return err
			}
			continue
		}
		value, err := flagForm(table[key])
		if err != nil {
			return exit.Usagef("file %s: %s: %w", c.path, name, err)
		}
		if isTable && value == "" {
			continue
		}
		if _, twice := c.values[name]; twice {
			return exit.Usagef("file %s: %s is given twice, with different spellings", c.path, name)
		}
		c.values[name] = value
	}
	return nil
}

// tableSettings are settings whose value is a whole table, because its keys are no settings of
// their own.
var tableSettings = []string{"allow", "allow-api", "timeout", "weights"}

// flagForm formats a TOML value like the value of a flag. A table gets one line for each key, as the
// flags in tableSettings take it.
func flagForm(value any) (string, error) {
	table, isTable := value.(map[string]any)
	if !isTable {
		return listForm(value)
	}
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(table)) {
		text, err := listForm(table[key])
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
		lines.WriteString(key + "=" + text + "\n")
	}
	return lines.String(), nil
}

// listForm formats a value or a list of values, which becomes comma-separated.
func listForm(value any) (string, error) {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	items := make([]string, len(list))
	for i, item := range list {
		switch item.(type) {
		case string, bool, int64, float64:
			items[i] = fmt.Sprint(item)
		default:
			return "", fmt.Errorf("a %T is not allowed here: write a string, a number, true, false or a list of these", item)
		}
	}
	return strings.Join(items, ","), nil
}

// checkKeys returns an error for a key that is no setting of any command, so that a misspelt setting
// is not silently ignored.
func (c configFile) checkKeys(known []string) error {
	for _, name := range slices.Sorted(maps.Keys(c.values)) {
		if _, ok := slices.BinarySearch(known, name); !ok {
			if near := Nearest(name, known); near != "" {
				return exit.Usagef("file %s: there is no setting %q; the nearest one is %q", c.path, name, near)
			}
			return exit.Usagef("file %s: there is no setting %q; 'dispatcherd serve --help' lists those of the daemon", c.path, name)
		}
	}
	return nil
}

// Nearest returns the known name with the smallest edit distance. Of several such names it
// returns the first. It returns "" if every distance is too large for a typing error.
func Nearest(name string, known []string) string {
	best, fewest := "", min(3, (len(name)+1)/2)
	for _, k := range known {
		if d := edlib.OSADamerauLevenshteinDistance(strings.ToLower(name), strings.ToLower(k)); d < fewest {
			best, fewest = k, d
		}
	}
	return best
}
