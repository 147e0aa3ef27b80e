package dispatcherd_test

import (
	"testing"

	"github.com/dispatcherd/dispatcherd"
	"github.com/stretchr/testify/require"
)

// The marks of one session's presentations are all different from its fingerprint
// and in the order of the presentations, whatever the fingerprint is.
func TestEveryPresentationLeavesAnotherMark(t *testing.T) {
	for _, m := range []dispatcherd.Mark{-77, 1 << 60, 5, 1 << 16, -1 << 16, -1, 0x7fff_ffff_ffff_0003} {
		require.Equal(t, m, m.Nth(0), "who does not count leaves the fingerprint")
		before := m
		for n := 1; n <= dispatcherd.MaxPresentations; n++ {
			to := m.Nth(n)
			p := dispatcherd.Presented{From: m, To: to}
			if to == m || !p.Follows(before) || !p.Follows(m) || p.Follows(to) || n > 1 && (&dispatcherd.Presented{From: m, To: before}).Follows(to) {
				require.Failf(t, "out of order", "%x: presentation %d leaves %x after %x", m, n, to, before)
			}
			before = to
		}
		last := dispatcherd.Presented{From: m, To: m.Nth(dispatcherd.MaxPresentations + 1)}
		require.False(t, last.Follows(before), "past the last number nothing can be told apart")
		require.False(t, last.Follows(m^(1<<20)), "another session's")
	}
}
