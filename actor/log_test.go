package actor

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// logging is a core with messages of one user.
type logging struct {
	*Core

	session *session
}

func newLogging(user string) logging { return logging{New(DefaultConfig()), &session{user: user}} }

func (l logging) say(j *job, message string) {
	l.keepLog(j, l.session, &contract.Report{Log: message})
	l.fx = nil
}

// naiveLog removes lines from the front, and then characters of the last line, until at most so many bytes are left.
func naiveLog(text string, most int) string {
	for lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n"); len(text) > most && len(lines) > 1; lines = lines[1:] {
		text = strings.TrimPrefix(text, lines[0])
	}
	for len(text) > most {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text
}

func TestLogEqualsTheNaiveEndOfAllMessages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		l, j, want := newLogging("u"), &job{}, ""
		for range rng.IntN(60) {
			word := []string{"a", "ü", "語", "\U0001F5A8"}[rng.IntN(4)]
			line := strings.Repeat(word, rng.IntN([]int{10, 300, 3000}[rng.IntN(3)])) + "\n"
			l.say(j, line)
			want = naiveLog(want+line, maxLog)
		}
		require.Zero(t, l.stats.LogCuts)
		require.Equal(t, want, j.row.log, n)
		require.True(t, utf8.ValidString(j.row.log))
		require.Equal(t, len(want), l.Gauges().LogBytes)
	}
}

// One user cannot take the room of the others. At its share its logs lose their oldest text.
func TestUsersShareTheBoundOfAllLogs(t *testing.T) {
	l := newLogging("greedy")
	line := strings.Repeat("x", maxLog-1) + "\n"
	var jobs []*job
	for range MaxLogs/maxLog + 5000 {
		jobs = append(jobs, &job{})
		l.say(jobs[len(jobs)-1], line)
	}
	require.LessOrEqual(t, l.Gauges().LogBytes, MaxLogs/8*7)
	require.Positive(t, l.stats.LogCuts)
	modest := &job{}
	logging{l.Core, &session{user: "modest"}}.say(modest, "m\n")
	require.Equal(t, "m\n", modest.row.log)
	require.LessOrEqual(t, l.Gauges().LogBytes, MaxLogs)
	for _, j := range append(jobs, modest) {
		l.dropLog(j)
	}
	require.Zero(t, l.Gauges().LogBytes)
}

// The log of an end that must be sent again is kept.
func TestLogIsPartOfTheEndAndIsDroppedWhenItIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=ann types=(pdf)", nil)
	w.command("insert", []string{"letter type=pdf"})
	w.command("run", nil)
	say := func(message string) []effect.Effect {
		return w.at.core.Step(w.now, Reported{Session: 1, Reports: []contract.Report{{Job: 1, Attempt: 1, Log: message}}}, nil)
	}
	require.Equal(t, []effect.Effect{&effect.Report{Report: contract.Report{Job: 1, Attempt: 1, Log: "info: a\n"}}}, say("info: a\n"))
	say("warn: b\n")
	fx := w.at.core.Step(w.now, Released{Session: 1, Results: []Result{{Job: 1, Attempt: 1, OK: true}}}, nil)
	request := one[*effect.Finish](t, fx).Request
	require.Equal(t, "info: a\nwarn: b\n", request.Items[0].Log)
	require.Equal(t, &effect.Stale{Session: 1, Job: 1, Attempt: 1}, one[*effect.Stale](t, say("late\n")))
	deferred := contract.FinishResult{Deferred: []contract.Deferred{{ID: 1}}}
	w.at.core.Step(w.now, Finished{Request: request, Result: deferred}, nil)
	require.Equal(t, 16, w.at.core.Gauges().LogBytes)
	fx = w.at.core.Step(w.now+60_000, Tick{}, nil)
	request = one[*effect.Finish](t, fx).Request
	require.Equal(t, "info: a\nwarn: b\n", request.Items[0].Log)
	w.at.core.Step(w.now+60_000, Finished{Request: request}, nil)
	require.Zero(t, w.at.core.Gauges().LogBytes)
}
