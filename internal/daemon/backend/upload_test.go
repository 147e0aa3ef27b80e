package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func lineTest(text string) *upload {
	return &upload{
		lines:  newLineReader(strings.NewReader(text), 100),
		permit: func(string) error { return nil },
		report: func(int, error) {},
	}
}

// Postgres reports the number of an inserted job. Callers need the number of its line.
func TestRefusedJobIsFoundInTheLines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kinds := rapid.SliceOf(rapid.SampledFrom([]string{`{"type":"pdf"}`, "", "bad"})).Draw(rt, "lines")
		u := lineTest(strings.Join(kinds, "\n"))
		for _, err := range u.jobs {
			require.NoError(rt, err)
		}
		job := 0
		for i, kind := range kinds {
			if kind != "" && kind != "bad" {
				job++
				require.Equal(rt, i+1, u.line(job))
			}
		}
	})
}

func TestMemoryForBlankLinesIsBounded(t *testing.T) {
	const n = maxGaps + 1000
	u := lineTest(strings.Repeat("\n{\"type\":\"pdf\"}\n", n))
	for _, err := range u.jobs {
		require.NoError(t, err)
	}
	require.Len(t, u.gaps, maxGaps)
	require.Equal(t, 2, u.line(1))
	require.Equal(t, 2*(maxGaps-1), u.line(maxGaps-1))
	require.Zero(t, u.line(n), "unknown")
}
