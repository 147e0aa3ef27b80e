package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd/scoring"
)

func TestWeightsKeepTheDefaultsOfOmittedKeys(t *testing.T) {
	w := scoring.Default()
	v := Weights(&w)
	require.Equal(t, "priority=1024, ageing=16, rarity=500, on-demand=4096, on-demand-ageing=32", v.String())
	require.NoError(t, v.Set("ageing=32,rarity=0"))
	require.NoError(t, v.Set("on_demand=7\non-demand-ageing=8\n"), "a table of the file, with both spellings")
	want := scoring.Default()
	want.Ageing, want.Rarity, want.OnDemand, want.OnDemandAgeing = 32, 0, 7, 8
	require.Equal(t, want, w)
}

func TestBadWeightNamesKeyValueRuleAndExample(t *testing.T) {
	for text, says := range map[string][]string{
		"":                            {`"" is no weight`, "such as priority=1024", "on-demand-ageing"},
		"aging=2":                     {`"aging=2" is no weight`, "such as priority=1024", "priority, ageing, rarity"},
		"ageing":                      {`"ageing" is no weight`},
		"ageing=1.5":                  {`weight "ageing" is "1.5": give a whole number, such as ageing=16`},
		"ageing=0":                    {`weight "ageing" is 0`, "from 1 to 1000000", "an example is priority=1024,ageing=16"},
		"on-demand-ageing=1000001":    {`weight "on-demand-ageing" is 1000001`, "from 0 to 1000000"},
		"priority=-1":                 {`weight "priority" is -1`, "from 0 to 1000000000"},
		"rarity=1,rarity=2":           {`weight "rarity" is given twice, the second time as "2"`, "such as"},
		"rarity=99999999999999999999": {`weight "rarity" is "99999999999999999999": give a whole number`},
	} {
		w := scoring.Default()
		err := Weights(&w).Set(text)
		for _, part := range says {
			require.ErrorContains(t, err, part, text)
		}
	}
	w := scoring.Default()
	v := Weights(&w)
	require.NoError(t, v.Set("rarity=1"))
	require.ErrorContains(t, v.Set("rarity=2"), `weight "rarity" is given twice`)
}

func TestWeightsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		points, slope := rapid.Int64Range(0, 1_000_000_000), rapid.Int64Range(1, 1_000_000)
		want, got := scoring.Default(), scoring.Default()
		want.Priority, want.Ageing, want.Rarity = points.Draw(rt, "priority"), slope.Draw(rt, "ageing"), points.Draw(rt, "rarity")
		want.OnDemand, want.OnDemandAgeing = points.Draw(rt, "on-demand"), slope.Draw(rt, "on-demand-ageing")
		text := Weights(&want).String()
		if rapid.Bool().Draw(rt, "table of the file") {
			text = strings.ReplaceAll(text, ",", "\n") + "\n"
		}
		require.NoError(rt, Weights(&got).Set(text))
		require.Equal(rt, want, got)
	})
}
