package permits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// All is the cost of a job that runs alone on a key.
const All int64 = -1

// Bounds of the column keys.
const (
	MaxWords = 4
	MaxCost  = 1_000_000
	maxKey   = 128   // characters
	maxBytes = 1_000 // of all words
)

// example is a value that follows the rules.
const example = "'tenant:42 stripe*3'"

// Need is what a job needs of one key.
type Need struct {
	Key  string
	Cost int64 // All, or at least 1
}

// Parse returns the needs of the value of the column keys, in the order of the words. The costs of
// equal keys add up; All prevails. The error names the word, the rule and an example. The constraint
// keys_are_1_to_4_words accepts the same values, and its errors have the same texts.
func Parse(keys string) ([]Need, error) {
	words := strings.Count(keys, " ") + 1
	if words > MaxWords || len(keys) > maxBytes {
		return nil, fmt.Errorf("keys have %d words and %d bytes: use at most %d words and %d bytes, for example %s", words,
			len(keys), MaxWords, maxBytes, example)
	}
	needs := make([]Need, 0, words)
	for word := range strings.SplitSeq(keys, " ") {
		n, err := parseWord(word)
		if err != nil {
			return nil, err
		}
		if o := find(needs, n.Key); o != nil {
			o.add(n.Cost)
		} else {
			needs = append(needs, n)
		}
	}
	return needs, nil
}

// find returns the need of a key, or nil.
func find(needs []Need, key string) *Need {
	if at := slices.IndexFunc(needs, func(n Need) bool { return n.Key == key }); at >= 0 {
		return &needs[at]
	}
	return nil
}

// add adds a cost; All prevails.
func (n *Need) add(cost int64) {
	if n.Cost == All || cost == All {
		n.Cost = All
	} else {
		n.Cost += cost
	}
}

// parseWord returns the need of one word: KEY, KEY*COST or KEY*all.
func parseWord(word string) (Need, error) {
	key, cost, given := strings.Cut(word, "*")
	n := int64(1)
	valid := IsKey(key)
	switch {
	case cost == "all":
		n = All
	case given:
		parsed, err := strconv.ParseUint(cost, 10, 63)
		valid = valid && err == nil && parsed >= 1 && parsed <= MaxCost && cost[0] != '0'
		n = int64(parsed)
	}
	if !valid {
		return Need{}, fmt.Errorf(
			"keys: the word %q is not KEY, KEY*COST or KEY*all: KEY has 1 to %d characters without blanks, control characters and *, "+
				"COST is 1 to %d, and one blank separates words, for example %s",
			word,
			maxKey, MaxCost, example,
		)
	}
	return Need{key, n}, nil
}

// IsKey reports whether a text can be a key.
func IsKey(key string) bool {
	return key != "" && utf8.ValidString(key) && utf8.RuneCountInString(key) <= maxKey &&
		!strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' })
}

// NeedsOf returns the needs of keys that are in the table.
func NeedsOf(keys string) []Need {
	needs, err := Parse(keys)
	if err != nil {
		return []Need{{Key: keys, Cost: All}} // the constraint rejects such a value
	}
	return needs
}

// NeedOf returns what a job with keys that are in the table needs of a key, or nil.
func NeedOf(keys, key string) *Need { return find(NeedsOf(keys), key) }

// Shared returns the keys that both of two jobs need, with the cost of both together; All if one of them needs all of the key.
// Invalid values share none.
func Shared(a, b string) (shared []Need) {
	first, _ := Parse(a)
	second, _ := Parse(b)
	for _, n := range first {
		if o := find(second, n.Key); o != nil {
			n.add(o.Cost)
			shared = append(shared, n)
		}
	}
	return shared
}
