package flowstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// table answers statements and notes them.
type table struct {
	due      []dispatcherd.JobID
	results  map[dispatcherd.JobID]Result
	errs     map[dispatcherd.JobID]error
	stepped  []dispatcherd.JobID
	aside    []dispatcherd.JobID
	repaired []dispatcherd.JobID
	old      int // portions that have expired
	pass     func()
	items    []int // limits of the steps
	searches int
}

func (f *table) Step(_ context.Context, id dispatcherd.JobID, l flow.Limits) (Result, error) {
	f.stepped, f.items = append(f.stepped, id), append(f.items, l.Items)
	if f.pass != nil {
		f.pass()
	}
	return f.results[id], f.errs[id]
}

func (f *table) Due(_ context.Context, after dispatcherd.JobID) (due []Due, err error) {
	f.searches++
	for _, id := range f.due {
		if id > after {
			due = append(due, Due{ID: id})
		}
	}
	return due, f.errs[0]
}

func (f *table) SetAside(_ context.Context, id dispatcherd.JobID, _ error) error {
	f.aside = append(f.aside, id)
	return nil
}

func (f *table) Repair(_ context.Context, previous dispatcherd.JobID) (dispatcherd.JobID, error) {
	f.repaired = append(f.repaired, previous)
	if previous == 2 {
		return 0, nil
	}
	return previous + 1, nil
}

func (f *table) Expire(context.Context, time.Duration) (bool, error) {
	f.old--
	return f.old > 0, nil
}

func newService() (s *Service, f *table, clock *time.Time, woken *contract.Topics) {
	f = &table{results: map[dispatcherd.JobID]Result{}, errs: map[dispatcherd.JobID]error{}}
	clock, woken = new(time.Unix(1000, 0)), new(contract.Topics)
	return &Service{Table: f, Log: zap.NewNop(), Clock: func() time.Time { return *clock }, Wake: func(t contract.Topics) { *woken |= t }},
		f, clock, woken
}

// A step has rounds for 25 ms. So its time says nothing about the limits, which bound a round: after slow rounds the limits grow again
// while rounds are short, although each step is as long as before.
func TestLimitsFollowTheTimeOfARound(t *testing.T) {
	s, f, clock, _ := newService()
	took, rounds := 200*time.Millisecond, 1
	f.pass = func() {
		*clock = clock.Add(took)
		f.results[1] = Result{Left: true, Rounds: rounds}
	}
	s.turns.Add(1, "", true)
	step := func() {
		_, err := s.step(t.Context(), background.Now{At: *clock})
		require.NoError(t, err)
	}
	step()
	step()
	took, rounds = 30*time.Millisecond, 4
	step()
	step()
	step()
	require.Equal(t, []int{1000, 500, 250, 500, 1000}, f.items)
}

// settle searches for targets if a topic asks for it, and does steps until there is none to do at once.
func settle(t *testing.T, s *Service, clock *time.Time, topics contract.Topics) (wait time.Duration) {
	t.Helper()
	if topics&contract.EndsWait != 0 {
		_, err := s.search(t.Context(), background.Now{At: *clock})
		require.NoError(t, err)
	}
	for range 1000 {
		var err error
		if wait, err = s.step(t.Context(), background.Now{At: *clock}); err != nil || wait > 0 {
			require.NoError(t, err)
			return wait
		}
	}
	require.Fail(t, "steps do not end")
	return 0
}

func TestTargetsOfJobsThatEndHereComeFirst(t *testing.T) {
	s, f, clock, woken := newService()
	f.due = []dispatcherd.JobID{1, 2, 3}
	s.Claimed([]contract.Won{{ID: 10, Target: 20}, {ID: 11}, {ID: 12, Target: -21}, {ID: 13, Target: -13}})
	var r contract.FinishRequest
	for id := dispatcherd.JobID(10); id <= 13; id++ {
		r.Items = append(r.Items, contract.Finish{ID: id})
	}
	s.Finished(&r, &contract.FinishResult{Verdict: contract.Unknown})
	require.Zero(t, *woken)
	s.Finished(&r, &contract.FinishResult{Verdict: contract.OK})
	require.Equal(t, contract.EndsRecorded, *woken)
	require.Equal(t, time.Hour, settle(t, s, clock, contract.EndsWait))
	require.Equal(t, []dispatcherd.JobID{20, 21, 12, 1, 13, 2, 3}, f.stepped)
	s.Finished(&r, &contract.FinishResult{Verdict: contract.OK})
	settle(t, s, clock, 0)
	require.Len(t, f.stepped, 7, "each end is noted once, and no heartbeat has found others")
}

// Jobs that are adopted or released end on other dispatchers.
func TestNotedJobsAreBounded(t *testing.T) {
	s, f, clock, _ := newService()
	for id := range dispatcherd.JobID(mostOwn + 1) {
		s.Watched(id + 1)
	}
	s.Finished(&contract.FinishRequest{Items: []contract.Finish{{ID: mostOwn + 1}}}, &contract.FinishResult{Verdict: contract.OK})
	settle(t, s, clock, 0)
	require.Equal(t, []dispatcherd.JobID{mostOwn + 1}, f.stepped, "its target is fresh, although the others have not ended here")
	require.Empty(t, s.own)
}

func TestStepThatTellsOthersLooksForThem(t *testing.T) {
	s, f, clock, woken := newService()
	f.results[1] = Result{OthersTold: true}
	s.Watched(1)
	s.Finished(&contract.FinishRequest{Items: []contract.Finish{{ID: 1}}}, &contract.FinishResult{Verdict: contract.OK})
	f.due = []dispatcherd.JobID{5}
	*woken = 0
	settle(t, s, clock, contract.EndsRecorded)
	settle(t, s, clock, *woken)
	require.Equal(t, []dispatcherd.JobID{1, 5}, f.stepped)
}

// An old snapshot keeps so many dead messages that a search takes too long.
func TestStepsGoOnWhileTheSearchFails(t *testing.T) {
	s, f, clock, _ := newService()
	f.errs[0] = &pgconn.PgError{Code: "57014"}
	s.turns.Add(1, "", true)
	_, err := s.search(t.Context(), background.Now{At: *clock, Woken: contract.EndsWait})
	require.Error(t, err)
	require.Equal(t, time.Hour, settle(t, s, clock, 0))
	require.Equal(t, []dispatcherd.JobID{1}, f.stepped)
}

// Producers that seal batches, and any session of Postgres, may notify all the time. Between two searches there is a rest, in which others
// get their steps.
func TestNotificationsCauseNoSearchAtEachStep(t *testing.T) {
	s, f, clock, _ := newService()
	f.due = []dispatcherd.JobID{1, 2, 3}
	turns, steps := map[string]*background.Turn{}, map[string]background.Service{}
	for _, service := range s.Services() {
		turns[service.Name], steps[service.Name] = background.NewTurn(&service, rand.New(rand.NewPCG(1, 1))), service
	}
	s.Wake = func(topics contract.Topics) {
		for _, turn := range turns {
			turn.Wake(topics)
		}
	}
	for range 100 {
		s.Wake(contract.EndsWait)
		for name, turn := range turns {
			if turn.Pause(*clock) == 0 {
				service := steps[name]
				wait, err := service.Do(t.Context(), turn.Begin(*clock))
				turn.End(*clock, wait, err)
			}
		}
		*clock = clock.Add(time.Millisecond)
	}
	searches := f.searches / 2 // each ends with an answer that is empty
	require.InDelta(t, 10, searches, 1)
	require.GreaterOrEqual(t, len(f.stepped), 3*searches)
}

// A caller of the API waits for the turn of its target, and takes none from others: the targets of jobs that have ended here come first,
// because the steps that callers ask for are long.
func TestSettleWaitsForTheTurnOfItsTarget(t *testing.T) {
	s, f, clock, _ := newService()
	woken := make(chan contract.Topics, 1)
	s.Wake = func(topics contract.Topics) { woken <- topics }
	f.results[7] = Result{Left: true}
	settled := make(chan struct{})
	go func() {
		s.Settle(t.Context(), 7)
		close(settled)
	}()
	require.Equal(t, contract.EndsRecorded, <-woken)
	s.turns.Add(1, "", true) // a job has ended here
	for range 2 {
		_, err := s.step(t.Context(), background.Now{At: *clock})
		require.NoError(t, err)
	}
	require.Equal(t, []dispatcherd.JobID{1, 7}, f.stepped)
	require.NotEmpty(t, s.settled, "its second step is to come")
	f.results[7] = Result{}
	settle(t, s, clock, 0)
	<-settled
	require.Equal(t, []dispatcherd.JobID{1, 7, 7}, f.stepped)
	require.Empty(t, s.settled)
}

func TestTargetWhoseStepsFailIsSetAsideAndDelaysNoOther(t *testing.T) {
	s, f, clock, _ := newService()
	core, logs := observer.New(zap.InfoLevel)
	s.Log, f.due = zap.New(core), []dispatcherd.JobID{1, 2}
	f.errs[1] = &pgconn.PgError{Code: "P0001", Message: "a trigger quotes the payload"}
	wait := settle(t, s, clock, contract.EndsWait)
	require.Equal(t, []dispatcherd.JobID{1, 2}, f.stepped)
	for n := 0; len(f.aside) == 0; n++ {
		require.Less(t, n, 20)
		*clock = clock.Add(wait)
		wait = settle(t, s, clock, 0)
	}
	require.Equal(t, []dispatcherd.JobID{1}, f.aside)
	require.Equal(t, time.Hour, wait)
	require.Equal(t, map[string]any{"job": int64(1), "sqlstate": "P0001"}, logs.All()[0].ContextMap(), "the payload is not logged")
}

// A page that cannot be read, or a row that Go cannot decode, returns with each step of its target.
func TestErrorsOfAnyKindSetTheirTargetAsideIfOthersSucceed(t *testing.T) {
	for _, err := range []error{&pgconn.PgError{Code: "58030"}, &pgconn.PgError{Code: "57014"}, errors.New("a time cannot be decoded")} {
		s, f, clock, _ := newService()
		f.errs[1], f.results[2] = err, Result{Left: true}
		s.turns.Add(1, "", false)
		s.turns.Add(2, "", false)
		for n := 0; len(f.aside) == 0; n++ {
			require.Less(t, n, 1000, err)
			*clock = clock.Add(100 * time.Millisecond)
			_, failed := s.step(t.Context(), background.Now{At: *clock})
			if _, ofPostgres := errors.AsType[*pgconn.PgError](err); ofPostgres {
				require.NoError(t, failed, "the service does not pause")
			}
		}
		require.Equal(t, []dispatcherd.JobID{1}, f.aside)
	}
}

func TestLostConnectionIsNoFailureOfATarget(t *testing.T) {
	s, f, clock, _ := newService()
	f.errs[1] = errors.New("the connection is lost")
	f.due = []dispatcherd.JobID{1}
	for range 100 {
		_, err := s.search(t.Context(), background.Now{At: *clock})
		require.NoError(t, err)
		_, err = s.step(t.Context(), background.Now{At: *clock})
		if *clock = clock.Add(time.Second); err != nil {
			require.ErrorContains(t, err, "the connection is lost")
		}
	}
	require.Empty(t, f.aside)
	delete(f.errs, 1)
	settle(t, s, clock, 0)
	require.Equal(t, time.Hour, settle(t, s, clock, 0))
}

func TestUpkeepExpiresAndRepairsInPortions(t *testing.T) {
	s, f, clock, _ := newService()
	f.old = 3
	upkeep := func() time.Duration {
		wait, err := s.upkeep(t.Context(), background.Now{At: *clock})
		require.NoError(t, err)
		return wait
	}
	require.Equal(t, expireEvery, upkeep())
	require.Equal(t, 3, f.old)
	*clock = clock.Add(expireEvery)
	for range 2 {
		require.Zero(t, upkeep(), "there is more")
	}
	for range 2 {
		require.Equal(t, repairPause, upkeep())
	}
	require.Equal(t, expireEvery, upkeep())
	require.Equal(t, []dispatcherd.JobID{0, 1, 2}, f.repaired)
}
