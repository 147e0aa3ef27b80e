package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/api"
)

func TestWhyExplainsThatAJobIsNeverOvertaken(t *testing.T) {
	soon := 2.5
	for want, c := range map[string]struct {
		rival api.Rival
		mode  string
	}{
		"job 7 pdf priority 0 queued, score 0: never overtaken: both age at the same rate":                     {api.Rival{Mode: "queued"}, "queued"},
		"job 7 pdf priority 0 on_demand, score 0: never overtaken: an on-demand request ages at least as fast": {api.Rival{Mode: "on_demand"}, "queued"},
		"job 7 pdf priority 0 on_demand, score 0: never overtaken: both age at the same rate":                  {api.Rival{Mode: "on_demand"}, "on_demand"},
		"job 7 pdf priority 0 queued, score 0: overtaken in 2.5s":                                              {api.Rival{Mode: "queued", Passed: &soon}, "on_demand"},
		"job 7 pdf priority 0 queued, score 0: overtaken now":                                                  {api.Rival{Mode: "queued", Passed: new(float64)}, "on_demand"},
	} {
		c.rival.Job, c.rival.Type = 7, "pdf"
		require.Equal(t, want, rivalText(&c.rival, c.mode))
	}
}

func TestWhyCountsSlotsOfOtherDispatchers(t *testing.T) {
	require.Equal(t, "0 support the type, 0 of them free", slotsText(&api.Why{}))
	require.Equal(t, "2 support the type, 1 of them free; 3 more at other dispatchers", slotsText(&api.Why{Capacity: 2, Free: 1, OtherSlots: 3}))
}
