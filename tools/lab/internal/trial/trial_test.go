package trial

import (
	"testing"
	"time"
)

// The comment of Size and docs/explanation/reliability.md state these durations.
func TestFaultsLastAsLongAsDocumented(t *testing.T) {
	for size, want := range map[Size]int{Short: 6, Normal: 20, Long: 135} {
		var sum time.Duration
		for _, x := range All() {
			if !x.OnlyLong || size == Long {
				sum += x.Least[size]
			}
		}
		if got := int(sum / time.Minute); got != want {
			t.Errorf("size %d: the faults last %d minutes (%v), want %d", size, got, sum, want)
		}
	}
}
