package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func TestTimeoutsOfTypesAreParsedAndBounded(t *testing.T) {
	var limits map[string]time.Duration
	f := timeoutsValue(&limits)
	require.NoError(t, f.Set("pdf=30s,a=b=1m"))
	require.NoError(t, f.Set("excel=1ms"))
	require.Equal(t, map[string]time.Duration{"pdf": 30 * time.Second, "a=b": time.Minute, "excel": time.Millisecond}, limits)
	require.Equal(t, "a=b=1m0s,excel=1ms,pdf=30s", f.String())
	for _, bad := range []string{
		"", "pdf", "=3s", "pdf=", "pdf=0", "pdf=-1s", "pdf=10000h", "pdf=30", "pdf\u200b=1s", strings.Repeat("x", 129) + "=1s",
	} {
		require.Error(t, f.Set(bad), bad)
	}
}

func TestTimeoutsMayBeATableOfTheFile(t *testing.T) {
	for text, want := range map[string]string{
		"[timeout]\npdf = '30s'\n'a,b' = '1m'\nunder_score = '2s'\n": "a,b=1m0s,pdf=30s,under_score=2s",
		"[timeout]\npdf = '30s'\n":                                   "pdf=30s",
		"timeout = ['pdf=30s', 'excel=1m']\n":                        "excel=1m0s,pdf=30s",
		"[timeout]\n":                                                "-",
	} {
		got := invocation{args: []string{"config", "show", "--config", configFileWith(t, text)}}.runs(t)
		require.Equal(t, exit.OK, got.code, got.err)
		require.Regexp(t, `(?m)^timeout +`+want+`$`, got.out, text)
	}
}

func TestWeightsMayBeATableOfTheFile(t *testing.T) {
	for text, want := range map[string]string{
		"[weights]\npriority = 2\non_demand = 3\n": "priority=2, ageing=16, rarity=500, on-demand=3, on-demand-ageing=32 +file ",
		"weights = 'ageing=5'\n":                   "priority=1024, ageing=5, rarity=500, on-demand=4096, on-demand-ageing=32 +file ",
		"[weights]\n":                              "priority=1024, ageing=16, rarity=500, on-demand=4096, on-demand-ageing=32 +default",
	} {
		got := invocation{args: []string{"config", "show", "--origin", "--config", configFileWith(t, text)}}.runs(t)
		require.Equal(t, exit.OK, got.code, got.err)
		require.Regexp(t, `(?m)^weights +`+want, got.out, text)
	}
	for text, want := range map[string]string{
		"[weights]\naging = 2\n":                    `for weights: "aging=2" is no weight`,
		"[weights]\non_demand = 1\non-demand = 1\n": `for weights: weight "on-demand" is given twice`,
		"[weight]\nageing = 2\n":                    `there is no setting "weight-ageing"`,
	} {
		got := invocation{args: []string{"config", "show", "--config", configFileWith(t, text)}}.runs(t)
		require.Equal(t, exit.Usage, got.code)
		require.Contains(t, got.err, want)
	}
}
