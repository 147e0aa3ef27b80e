package stats

import "testing"

func TestQuantilesLieBetweenTheirNeighbours(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{nil, 0.5, 0},
		{[]float64{7}, 0.99, 7},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2, 3}, 1, 3},
		{[]float64{1, 2, 3}, 0, 1},
	} {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
}

func TestSummaryKeepsTheExtremes(t *testing.T) {
	s := Summarise([]float64{90, 110, 100})
	if s != (Summary{Median: 100, Min: 90, Max: 110, Count: 3}) {
		t.Errorf("got %+v", s)
	}
}
