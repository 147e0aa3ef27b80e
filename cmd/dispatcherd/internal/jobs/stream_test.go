package jobs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd/internal/joblines"
)

// Postgres reports the number of an inserted job. Users need the number of its
// line.
func TestPlaceIsTheLineOfTheJob(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kinds := rapid.SliceOf(rapid.SampledFrom([]string{`{"type":"pdf"}`, "", "bad"})).Draw(rt, "lines")
		stream := &jobStream{
			lines:    joblines.NewReader(strings.NewReader(strings.Join(kinds, "\n")), 100),
			skipBad:  true,
			complain: func(string, ...any) {},
		}
		for _, err := range stream.jobs {
			require.NoError(rt, err)
		}
		job := int64(0)
		for i, kind := range kinds {
			if kind != "" && kind != "bad" {
				job++
				require.Equal(rt, fmt.Sprintf("line %d", i+1), stream.place(job))
			}
		}
	})
}

func TestMemoryForBlankLinesIsBounded(t *testing.T) {
	const n = maxGaps + 1000
	stream := &jobStream{lines: joblines.NewReader(strings.NewReader(strings.Repeat("\n{\"type\":\"pdf\"}\n", n)), 100)}
	for _, err := range stream.jobs {
		require.NoError(t, err)
	}
	require.Len(t, stream.gaps, maxGaps)
	require.Equal(t, "line 2", stream.place(1))
	require.Equal(t, fmt.Sprintf("line %d", 2*(maxGaps-1)), stream.place(maxGaps-1))
	require.Equal(t, fmt.Sprintf("job %d of the input, blank and skipped lines not counted", n), stream.place(n))
}
