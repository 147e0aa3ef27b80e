package logtail

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// logOf returns the log of an attempt as a finish gets it.
func logOf(t *Tails, job dispatcherd.JobID, attempt dispatcherd.Attempt) string {
	return string(t.Of([]contract.Finish{{ID: job, Attempt: attempt}})[job])
}

// naive removes lines from the front, and then characters of the last line, until at most so many bytes are left.
func naive(text string, most int) string {
	for lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n"); len(text) > most && len(lines) > 1; lines = lines[1:] {
		text = strings.TrimPrefix(text, lines[0])
	}
	for len(text) > most {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text
}

func TestTailEqualsTheNaiveEndOfTheLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		tails := New()
		want := ""
		for range rng.IntN(60) {
			word := []string{"a", "ü", "語", "\U0001F5A8"}[rng.IntN(4)]
			line := strings.Repeat(word, rng.IntN([]int{10, 300, 3000}[rng.IntN(3)])) + "\n"
			tails.Add(7, 1, "u", line)
			want = naive(want+line, MaxText)
		}
		held, cuts := tails.Sizes()
		require.Zero(t, cuts)
		got := logOf(tails, 7, 1)
		require.Equal(t, want, got, n)
		require.True(t, utf8.ValidString(got))
		if want != "" {
			require.Equal(t, perLog+len(got), held)
			require.LessOrEqual(t, cap(tails.tails[7].text), MaxText)
		}
	}
}

func TestLogBelongsToOneAttemptAndEndsWithIt(t *testing.T) {
	tails := New()
	tails.Add(7, 1, "u", "first\n")
	require.Empty(t, logOf(tails, 7, 2))
	require.Empty(t, logOf(tails, 8, 1))
	tails.Add(7, 2, "u", "second\n")
	require.Empty(t, logOf(tails, 7, 1))
	require.Equal(t, "second\n", logOf(tails, 7, 2))
	tails.Add(7, 2, "u", "late\n")
	require.Equal(t, "second\n", logOf(tails, 7, 2), "a finish has the text")
}

// The log of an end that must be sent again is kept.
func TestRecordedAndStaleLogsAreDropped(t *testing.T) {
	tails := New()
	req := &contract.FinishRequest{}
	for id := range dispatcherd.JobID(5) {
		tails.Add(id, 1, "u", "x\n")
		req.Items = append(req.Items, contract.Finish{ID: id, Attempt: 1})
	}
	req.Items[4].Attempt = 2
	tails.Recorded(req, &contract.FinishResult{Verdict: contract.Unknown})
	held, _ := tails.Sizes()
	require.Equal(t, 5*(perLog+2), held)
	tails.Recorded(req, &contract.FinishResult{Stale: []dispatcherd.JobID{0}, Deferred: []contract.Deferred{{ID: 1}, {ID: 2}}})
	held, _ = tails.Sizes()
	require.Equal(t, 3*(perLog+2), held)
	require.Equal(t, "x\n", logOf(tails, 1, 1))
	require.Equal(t, "x\n", logOf(tails, 2, 1))
	require.Empty(t, logOf(tails, 3, 1))
	require.Equal(t, "x\n", logOf(tails, 4, 1), "the log of another attempt")
}

// One user cannot take the room of the others. At its share its logs lose their oldest text.
func TestUsersShareTheBoundOfAllLogs(t *testing.T) {
	tails := New()
	line := strings.Repeat("x", MaxText-1) + "\n"
	jobs := dispatcherd.JobID(0)
	for ; ; jobs++ {
		require.Less(t, jobs, dispatcherd.JobID(MaxTotal/MaxText))
		if tails.Add(jobs, 1, "greedy", line); len(logOf(tails, jobs, 1)) < MaxText {
			break
		}
	}
	for id := range dispatcherd.JobID(5000) {
		tails.Add(jobs+1+id, 1, "greedy", line)
	}
	held, cuts := tails.Sizes()
	require.LessOrEqual(t, held, MaxTotal/8*7)
	require.Positive(t, cuts)
	tails.Add(1e6, 1, "modest", "m\n")
	require.Equal(t, "m\n", logOf(tails, 1e6, 1))
	held, _ = tails.Sizes()
	require.LessOrEqual(t, held, MaxTotal)
	for id := range 1_000_001 {
		tails.Recorded(&contract.FinishRequest{Items: []contract.Finish{{ID: dispatcherd.JobID(id), Attempt: 1}}}, &contract.FinishResult{})
	}
	held, _ = tails.Sizes()
	require.Zero(t, held)
}
