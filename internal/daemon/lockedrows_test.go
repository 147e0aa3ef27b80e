package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The goroutine checks the first lost row of a claim. While it checks, one further row waits,
// and claims do not wait.
func TestLocksOfLostRowsAreLogged(t *testing.T) {
	core, logged := observer.New(zapcore.WarnLevel)
	checked, answer := make(chan dispatcherd.JobID), make(chan *claim.Lock)
	l := &lockedRows{
		log:   zap.New(core),
		lost:  make(chan dispatcherd.JobID, 1),
		pause: 1,
		locked: func(_ context.Context, id dispatcherd.JobID) (*claim.Lock, error) {
			checked <- id
			if lock := <-answer; lock != nil {
				return lock, nil
			}
			return nil, errors.New("no answer")
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(ctx)
	}()
	lose := func(ids ...dispatcherd.JobID) {
		res := contract.ClaimResult{
			Verdict:     contract.OK,
			Won:         []contract.Won{{ID: 1}},
			Loading:     []contract.Won{{ID: 2}},
			Unclaimable: []contract.Unclaimable{{ID: 3}},
		}
		l.claimed(&contract.ClaimRequest{IDs: append([]dispatcherd.JobID{1, 2, 3}, ids...)}, &res)
	}
	lose() // all rows are accounted for
	l.claimed(&contract.ClaimRequest{IDs: []dispatcherd.JobID{4}}, &contract.ClaimResult{Verdict: contract.Refused})
	lose(5, 6)
	require.EqualValues(t, 5, <-checked)
	for id := range dispatcherd.JobID(100) {
		lose(10 + id) // only the first one waits
	}
	answer <- &claim.Lock{PID: 77}
	require.EqualValues(t, 10, <-checked)
	answer <- nil
	lose(200)
	require.EqualValues(t, 200, <-checked)
	answer <- &claim.Lock{PID: 78, Application: "dispatcherd claim d"} // it ends at once
	lose(300)
	require.EqualValues(t, 300, <-checked)
	answer <- &claim.Lock{} // several sessions
	cancel()
	<-ended
	var lines []map[string]any
	for _, e := range logged.All() {
		lines = append(lines, e.ContextMap())
	}
	require.Equal(t, []map[string]any{{"job": int64(5), "locked_by": int64(77)}, {"job": int64(300), "locked_by": int64(0)}}, lines)
}
