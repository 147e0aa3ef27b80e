package rate

import "testing"

func TestRatiosOfTheOtherCommit(t *testing.T) {
	if jobs, copied, err := ratios(
		"noop: rate=100 base=110 ratio=0.909 copy_ratio=0.990 spread=0.1",
	); jobs != 0.909 || copied != 0.99 ||
		err != nil {
		t.Error(jobs, copied, err)
	}
	if jobs, copied, err := ratios("noop:"); jobs != 0 || copied != 0 || err != nil {
		t.Error("a missing line has values:", jobs, copied, err)
	}
	if _, _, err := ratios("noop: ratio=x"); err == nil {
		t.Error("no number passes")
	}
}
