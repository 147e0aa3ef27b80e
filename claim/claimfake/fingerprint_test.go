package claimfake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestGenerationsAreDistinctAndOrdered(t *testing.T) {
	for _, f := range []contract.Fingerprint{-77, 1 << 60, 5, 1 << 16, -1 << 16, -1, 0x7fff_ffff_ffff_0003} {
		require.Equal(t, f, f.WithGeneration(0), "generation 0 is the fingerprint itself")
		previous := f
		for n := 1; n <= contract.MaxGeneration; n++ {
			to := f.WithGeneration(n)
			o := contract.ResumeOffer{From: f, To: to}
			if to == f || !follows(&o, previous) || !follows(&o, f) || follows(&o, to) ||
				n > 1 && follows(&contract.ResumeOffer{From: f, To: previous}, to) {
				require.Failf(t, "out of order", "%x: generation %d gives %x after %x", f, n, to, previous)
			}
			previous = to
		}
		last := contract.ResumeOffer{From: f, To: f.WithGeneration(contract.MaxGeneration + 1)}
		require.False(t, follows(&last, previous), "generations above the maximum are equal")
		require.False(t, follows(&last, f^(1<<20)), "another session")
	}
}
