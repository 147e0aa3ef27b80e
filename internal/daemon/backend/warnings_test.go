package backend

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A search compares all known types, so a flow of 1,000 unknown types beside 1,000 known ones would take half a minute of processor time.
func TestManyUnknownTypesCauseFewSearchesForSimilarNames(t *testing.T) {
	w := &slowSlots{}
	w.open(t, 1)
	searches := 0
	b := New(Config{Loop: w.loop, Controls: func() *contract.Controls { return &contract.Controls{} }, Others: func() map[string]int {
		searches++
		return nil
	}})
	needs := []contract.Needs{{Type: "pdf"}}
	for i := range 1000 {
		needs = append(needs, contract.Needs{Type: fmt.Sprintf("unknown-%d", i)})
	}
	require.Len(t, b.warnings(t.Context(), needs...), mostWarnings)
	require.Equal(t, mostWarnings, searches)
}
