package traces

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/scoring"
)

func TestWeightsRoundTrip(t *testing.T) {
	w, err := parseWeights("priority=1,ageing=2,rarity=3,on-demand=4,on-demand-ageing=5,on-demand-cap=6s")
	require.NoError(t, err)
	require.Equal(t,
		scoring.Weights{Priority: 1, Ageing: 2, Rarity: 3, OnDemand: 4, OnDemandAgeing: 5, OnDemandCap: 6 * time.Second},
		w.weights)
	w, err = parseWeights("on-demand-cap=none")
	require.NoError(t, err)
	article, err := parseWeights("article")
	require.NoError(t, err)
	require.Equal(t, article.weights, w.weights)
	require.Equal(t, scoring.NoCap, w.weights.OnDemandCap)
}
