package permits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// All is the cost of a job that runs alone on a key.
const All int64 = -1

// Bounds of the column keys.
const (
	MaxWords = 4
	MaxCost  = 1_000_000
	maxKey   = 128 // bytes
)

// Need is what a job needs of one key.
type Need struct {
	Key  string
	Cost int64 // All, or at least 1
}

// Parse returns the needs of the value of the column keys, in the order of the words. The costs of
// equal keys add up; All prevails. The error names the word, the rule and a working example. The domain
// dispatcherd.job_keys accepts the same values.
func Parse(keys string) ([]Need, error) {
	words := strings.Count(keys, " ") + 1
	if words > MaxWords {
		return nil, fmt.Errorf("keys %q have %d words; use at most %d, for example \"tenant:42 stripe*3\"", keys, words, MaxWords)
	}
	needs := make([]Need, 0, words)
	for word := range strings.SplitSeq(keys, " ") {
		n, err := parseWord(word)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(needs, func(o Need) bool { return o.Key == n.Key })
		switch {
		case at < 0:
			needs = append(needs, n)
		case n.Cost == All || needs[at].Cost == All:
			needs[at].Cost = All
		default:
			needs[at].Cost += n.Cost
		}
	}
	return needs, nil
}

// parseWord returns the need of one word: KEY, KEY*COST or KEY*all.
func parseWord(word string) (Need, error) {
	key, cost, given := strings.Cut(word, "*")
	if key == "" || len(key) > maxKey {
		return Need{}, fmt.Errorf("keys: the word %q names a key of %d bytes; use 1 to %d bytes and one blank between words, for example tenant:42",
			word, len(key), maxKey)
	}
	switch {
	case !given:
		return Need{key, 1}, nil
	case cost == "all":
		return Need{key, All}, nil
	}
	n, err := strconv.ParseUint(cost, 10, 63)
	if err != nil || n < 1 || n > MaxCost || cost[0] == '0' {
		return Need{}, fmt.Errorf("keys: the word %q has the cost %q; use a number from 1 to %d, or \"all\", for example %s*3", word, cost, MaxCost, key)
	}
	return Need{key, int64(n)}, nil
}

// needsOf returns the needs of keys that are in the table.
func needsOf(keys string) []Need {
	needs, err := Parse(keys)
	if err != nil {
		return []Need{{Key: keys, Cost: All}} // the domain rejects such a value
	}
	return needs
}
