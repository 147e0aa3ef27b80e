package lint

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// words are the terms of the project, and the packages whose comments a
// newcomer reads first must introduce all of them.
var words = []string{
	"type", "job", "slot", "worker", "session", "dispatcher", "candidate", "claim", "attempt",
	"on-demand request", "capacity", "rarity", "placement",
}

// glossary names the packages that introduce the words.
var glossary = []string{"", "scoring", "actor"}

func missingWords(comments map[string][]string) []string {
	var text strings.Builder
	for _, dir := range glossary {
		text.WriteString(strings.Join(comments[dir], " ") + " ")
	}
	all := strings.ToLower(strings.Join(strings.Fields(text.String()), " "))
	var found []string
	for _, w := range words {
		if !regexp.MustCompile(`\b` + w + `s?\b`).MatchString(all) {
			found = append(found, "no package comment of the root, scoring or actor speaks of "+w+": introduce the word where it belongs")
		}
	}
	return found
}

func TestThePackageCommentsIntroduceEveryWord(t *testing.T) {
	all, err := sources()
	require.NoError(t, err)
	report(t, missingWords(packageComments(all)))
}

func TestTheRuleOnWordsCanFail(t *testing.T) {
	all := strings.Join(words, ", ")
	require.Empty(t, missingWords(map[string][]string{"": {all}}))
	require.Len(t, missingWords(map[string][]string{"": {strings.Replace(all, "rarity", "scarcity", 1)}}), 1)
	require.Len(t, missingWords(map[string][]string{"claim": {all}}), len(words))
}
