package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever stands in a configuration file becomes settings, by names that a flag
// may have, or an error of the user's.
func FuzzConfigFile(f *testing.F) {
	f.Add([]byte("poll = '2s'\n[weight]\npriority = 2048\n[allow]\npdf = [1001, 1002]\n"))
	f.Add([]byte("a = 1\n'A-b' = [[1]]"))
	known := settingNames((&app{env: func(string) (string, bool) { return "", false }}).root())
	f.Fuzz(func(t *testing.T, text []byte) {
		file := configFile{path: "config.toml", values: map[string]string{}}
		err := file.parse(text)
		if err == nil {
			err = file.checkKeys(known)
		}
		if err != nil {
			var coded *codedError
			require.True(t, errors.As(err, &coded) && coded.code == exitUsage, "%v", err)
			return
		}
		for name := range file.values {
			require.Equal(t, strings.ReplaceAll(name, "_", "-"), name)
			require.Contains(t, known, name)
		}
	})
}
