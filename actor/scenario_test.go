package actor

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write what the core did into the scenario files; inspect the diff")

// TestScenarios runs the scenarios in testdata. A scenario is a list of blocks:
// sentences after #, a command with its lines, ----, and the output.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := play(t, string(text))
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(text), got)
		})
	}
}

// play runs a scenario and returns it with the actual outputs.
func play(t *testing.T, text string) string {
	w := newWorld(t)
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		var comments, input []string
		lines := strings.Split(block, "\n")
		for i, line := range lines {
			if line == "----" {
				break
			}
			if strings.HasPrefix(line, "#") {
				comments = append(comments, line)
			} else {
				input = append(input, lines[i])
			}
		}
		for _, c := range comments {
			out.WriteString(c + "\n")
		}
		if len(input) > 0 {
			out.WriteString(strings.Join(input, "\n") + "\n----\n")
			out.WriteString(w.command(input[0], input[1:]))
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// The same events give the same effects. The scenarios are a sample of all
// events.
func TestScenariosPlayTheSameTwice(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, play(t, string(text)), play(t, string(text)), file)
	}
}
