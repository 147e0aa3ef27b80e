package rig

import (
	"fmt"
	"os"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// Rounds calls measure for each of n contestants in every round. Each round begins with
// another contestant, so that the order favours none of them, and a slow phase of the
// machine affects all of them.
func Rounds(rounds, n int, measure func(round, contestant int) error) error {
	for round := range rounds {
		for i := range n {
			if err := measure(round, (i+round)%n); err != nil {
				return err
			}
		}
	}
	return nil
}

// pairs is the number of rounds of Compare.
const pairs = 5

// Compare returns the median of the quotients of two rates, measured in alternation.
func Compare(name string, rate func(with bool) (float64, error)) (float64, error) {
	var rates [2][]float64
	if err := Rounds(pairs, len(rates), func(_, i int) error {
		r, err := rate(i == 1)
		rates[i] = append(rates[i], r)
		if n := len(rates[0]); err == nil && n == len(rates[1]) {
			fmt.Fprintf(os.Stderr, "%s: round %d: %.0f jobs/s, without %.0f\n", name, n, rates[1][n-1], rates[0][n-1])
		}
		return err
	}); err != nil {
		return 0, err
	}
	return stats.Quantile(stats.Quotients(rates[1], rates[0]), 0.5), nil
}
