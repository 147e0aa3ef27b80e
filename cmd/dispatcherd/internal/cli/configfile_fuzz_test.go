package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// tree is a program with one setting of each kind that a file can contain.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "program"}
	(&Invocation{}).RegisterFlags(root.PersistentFlags())
	cmd := &cobra.Command{Use: "serve"}
	cmd.Flags().Duration("poll", 0, "")
	cmd.Flags().Var(Weights(new(scoring.Weights)), "weights", "")
	cmd.Flags().StringSlice("allow", nil, "")
	root.AddCommand(cmd)
	return root
}

// Any content of a configuration file becomes settings with valid names, or a usage error.
func FuzzConfigFile(f *testing.F) {
	f.Add([]byte("poll = '2s'\n[weights]\npriority = 2048\n[allow]\npdf = [1001, 1002]\n"))
	f.Add([]byte("a = 1\n'A-b' = [[1]]"))
	known := settingNames(tree())
	f.Fuzz(func(t *testing.T, text []byte) {
		file := configFile{path: "config.toml", values: map[string]string{}}
		err := file.parse(text)
		if err == nil {
			err = file.checkKeys(known)
		}
		if err != nil {
			var coded *exit.Error
			require.True(t, errors.As(err, &coded) && coded.Code == exit.Usage, "%v", err)
			return
		}
		for name := range file.values {
			require.Equal(t, strings.ReplaceAll(name, "_", "-"), name)
			require.Contains(t, known, name)
		}
	})
}
