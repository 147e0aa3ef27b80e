package claim_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// controller has the statements of a limitstore.Controller that the fake has, too.
type controller interface {
	Begin(ctx context.Context) (firstFence, lastArrived int64, err error)
	Limits(ctx context.Context) ([]permits.Limit, error)
	Edits(ctx context.Context, most int) (map[string]*permits.Limit, error)
	Held(ctx context.Context) ([]limitstore.Held, error)
	Arrived(ctx context.Context, after int64, most int) ([]limitstore.Waiting, bool, error)
	Heads(ctx context.Context, after permits.Class, most int) ([]limitstore.Waiting, error)
	Refill(ctx context.Context, refills []permits.Refill, most int) ([][]permits.Job, error)
	Admit(ctx context.Context, list []permits.Permit) (map[int64]dispatcherd.DurationClass, error)
	Withdraw(ctx context.Context, list []permits.Permit) (map[int64]bool, error)
	Types(ctx context.Context) (map[string]limitstore.Type, error)
}

// keyTable is what a world has for jobs with keys.
type keyTable struct {
	limit      func(t testing.TB, key string, capacity int64) // sets the only limit
	controller func(s store, dispatcher int32, term int64) controller
}

func fakeKeyTable(db *claimfake.Database) keyTable {
	return keyTable{
		limit: func(_ testing.TB, key string, capacity int64) {
			db.Do(func(t *claimfake.Table, _ int64) { t.SetLimits([]permits.Limit{{Key: key, Capacity: capacity}}) })
		},
		controller: func(_ store, dispatcher int32, term int64) controller {
			do := func(_ context.Context, f func(*claimfake.Table, int64) error) (err error) {
				db.Do(func(t *claimfake.Table, now int64) { err = f(t, now) })
				return err
			}
			return &claimfake.Controller{Do: do, Dispatcher: dispatcher, Term: term}
		},
	}
}

func realKeyTable(db *pgx.Conn) keyTable {
	return keyTable{
		limit: func(t testing.TB, key string, capacity int64) {
			exec(t, db, `WITH gone AS (DELETE FROM dispatcherd.limits WHERE key <> $1) INSERT INTO dispatcherd.limits (key, capacity) VALUES ($1, $2)
				ON CONFLICT (key) DO UPDATE SET capacity = $2`, key, capacity)
		},
		controller: func(s store, dispatcher int32, term int64) controller {
			return &limitstore.Controller{Do: s.(*claim.Store).Admission, Scan: s.(*claim.Store).Scan, Dispatcher: dispatcher, Term: term}
		},
	}
}

// elected returns a dispatcher that is the controller and has begun, with its id and its statements.
func elected(t *testing.T, w world) (s store, id int32, c controller) {
	t.Helper()
	s = w.open(t)
	id, err := s.Join(t.Context())
	require.NoError(t, err)
	c = w.controller(s, id, beat(t, s, nil).Term)
	_, _, err = c.Begin(t.Context())
	require.NoError(t, err)
	return s, id, c
}

func beat(t *testing.T, s store, capacity map[string]int) contract.HeartbeatResult {
	t.Helper()
	res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: capacity})
	require.NoError(t, err)
	return res
}

// permit is what Withdraw needs of a permit.
func permit(id dispatcherd.JobID, fence int64) permits.Permit {
	return permits.Permit{Job: permits.Job{ID: int64(id)}, Fence: fence}
}

func admission(r claimfake.Row, fence int64, dispatcher int32) permits.Permit {
	return permits.Permit{Class: permits.Class{Keys: r.Keys, Type: r.Type, Priority: int16(r.Priority)},
		Job: permits.Job{RunAt: r.RunAt, ID: int64(r.ID)}, Fence: fence, Dispatcher: dispatcher}
}

// admit admits jobs with one fence.
func admit(t *testing.T, w world, c controller, fence int64, ids ...dispatcherd.JobID) (admitted []int64) {
	t.Helper()
	var list []permits.Permit
	for _, id := range ids {
		list = append(list, admission(w.get(t, id), fence, 0))
	}
	found, err := c.Admit(t.Context(), list)
	require.NoError(t, err)
	return slices.Sorted(maps.Keys(found))
}

func fetched(t *testing.T, s store) (ids []dispatcherd.JobID) {
	t.Helper()
	res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "pdf", Limit: 10}}})
	require.Equal(t, contract.OK, res.Verdict)
	for _, c := range res.Candidates {
		ids = append(ids, c.Key.ID)
	}
	return ids
}

// held returns the rows with a fence, by id, without the times of starts.
func held(t *testing.T, c controller) []limitstore.Held {
	t.Helper()
	list, err := c.Held(t.Context())
	require.NoError(t, err)
	for i := range list {
		require.Equal(t, list[i].Started, list[i].Ago > 0)
		list[i].Ago = 0
	}
	slices.SortFunc(list, func(a, b limitstore.Held) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func TestJobWithKeysRunsOnlyWithItsPermits(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, me, c := elected(t, w)
		id, free := w.insert(t, claimfake.Row{Type: "pdf", Keys: "k"}, -time.Hour), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		require.NotZero(t, beat(t, s, nil).Waiting&contract.KeysWait)
		require.Equal(t, []dispatcherd.JobID{free}, fetched(t, s))
		require.Empty(t, s.Claim(t.Context(), claimOf(id)).Won)

		require.Equal(t, []int64{int64(id)}, admit(t, w, c, 7, id))
		require.Zero(t, beat(t, s, nil).Waiting&contract.KeysWait)
		require.Equal(t, []dispatcherd.JobID{id, free}, fetched(t, s))
		require.Empty(t, admit(t, w, c, 9, id), "it has its permits")
		request := claimOf(id)
		res := s.Claim(t.Context(), request)
		require.Len(t, res.Won, 1)
		require.EqualValues(t, 7, res.Won[0].Fence)
		require.EqualValues(t, 7, s.Resolve(t.Context(), request).Loading[0].Fence)
		row := w.get(t, id)
		want := admission(row, 7, me)
		require.Equal(t,
			[]limitstore.Held{{Permit: permits.Permit{Class: want.Class, Job: want.Job, Fence: 7, Dispatcher: me, Started: true}}},
			held(t, c))

		require.Empty(t, finish(t, s, contract.Finish{ID: id, Attempt: 1}))
		require.Empty(t, held(t, c))
		require.EqualValues(t, 7, w.get(t, id).Fence, "an ended row keeps its keys and its last fence")
		require.Equal(t, "k", w.get(t, id).Keys)
	})
}

func TestJobAdmittedToOneDispatcherRunsThereOnly(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, me, c := elected(t, w)
		other := joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf", Keys: "k"}, 0)
		named := w.insert(t, claimfake.Row{Type: "png", Keys: "k", Expected: time.Minute}, 0)
		found, err := c.Admit(t.Context(), []permits.Permit{admission(w.get(t, id), 7, me), admission(w.get(t, named), 7, me)})
		require.NoError(t, err)
		require.Equal(t, map[int64]dispatcherd.DurationClass{int64(id): 0, int64(named): 2}, found, "they have their classes")
		require.Equal(t, me, held(t, c)[0].Dispatcher)
		require.Empty(t, fetched(t, other))
		require.Empty(t, other.Claim(t.Context(), claimOf(id)).Won)
		require.Equal(t, []dispatcherd.JobID{id}, fetched(t, s))
		take(t, s, id)
		require.Equal(t, me, w.get(t, id).AdmittedTo)
		require.Empty(t, finish(t, s, contract.Finish{ID: id, Attempt: 1, Outcome: contract.Crashed}))
		require.Zero(t, w.get(t, id).AdmittedTo)
	})
}

// Whatever makes a running row pending gives its permits back.
func TestPendingAgainGivesPermitsBack(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, _, c := elected(t, w)
		lost, leaving := w.open(t), joined(t, w)
		run, err := lost.Join(t.Context())
		require.NoError(t, err)
		var ids []dispatcherd.JobID
		for range 5 {
			ids = append(ids, w.insert(t, claimfake.Row{Type: "pdf", Keys: "k"}, 0))
		}
		require.Len(t, admit(t, w, c, 10, ids...), 5)
		for i, by := range []store{s, s, s, lost, leaving} {
			take(t, by, ids[i])
		}
		require.Empty(t, finish(t, s, contract.Finish{ID: ids[0], Attempt: 1, Outcome: contract.Retry, Delay: time.Hour},
			contract.Finish{ID: ids[1], Attempt: 1, Outcome: contract.Released}, contract.Finish{ID: ids[2], Attempt: 1, Outcome: contract.Crashed}))
		w.lose(t, run)
		beat(t, s, nil)
		release(t, s)
		_, err = leaving.Leave(t.Context())
		require.NoError(t, err)
		for _, id := range ids {
			require.EqualValues(t, -10, w.get(t, id).Fence)
		}
		require.Zero(t, beat(t, s, nil).Waiting&contract.KeysWait, "they do not wait before the controller has read them")
		require.Empty(t, fetched(t, s))
		require.Empty(t, s.Claim(t.Context(), claimOf(ids...)).Won)
		all := held(t, c)
		require.Len(t, all, 5)
		for i := range all {
			require.True(t, all[i].Returned)
			require.EqualValues(t, 10, all[i].Fence)
			require.Zero(t, all[i].Dispatcher)
		}

		found, err := c.Withdraw(t.Context(), []permits.Permit{permit(ids[1], -10), permit(ids[2], -99), permit(ids[3], 10)})
		require.NoError(t, err)
		require.Equal(t, map[int64]bool{int64(ids[1]): true}, found, "the other fences are not current")
		require.NotZero(t, beat(t, s, nil).Waiting&contract.KeysWait)
		require.Zero(t, w.get(t, ids[1]).Fence)
		require.Equal(t, []int64{int64(ids[2])}, admit(t, w, c, 20, ids[2]), "a returned row may be admitted directly")
		require.EqualValues(t, 20, take(t, s, ids[2]).Fence)
	})
}

func TestWithdrawnJobWaitsAgain(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, _, c := elected(t, w)
		id, started := w.insert(t, claimfake.Row{Type: "pdf", Keys: "k"}, 0), w.insert(t, claimfake.Row{Type: "pdf", Keys: "k"}, 0)
		admit(t, w, c, 7, id, started)
		take(t, s, started)
		unlock := w.lock(t, id)
		both := []permits.Permit{permit(id, 7), permit(started, 7)}
		found, err := c.Withdraw(t.Context(), both)
		require.NoError(t, err)
		require.Empty(t, found, "one is locked, the other runs")
		unlock()
		found, err = c.Withdraw(t.Context(), both)
		require.NoError(t, err)
		require.Equal(t, map[int64]bool{int64(id): true}, found)
		require.Empty(t, fetched(t, s))
		require.Empty(t, s.Claim(t.Context(), claimOf(id)).Won)
		require.Zero(t, w.get(t, id).Fence)

		admit(t, w, c, 8, id)
		retry := permit(id, 8)
		retry.Retry = int64(id)
		found, err = c.Withdraw(t.Context(), []permits.Permit{retry})
		require.NoError(t, err)
		require.Equal(t, map[int64]bool{int64(id): true}, found)
		require.EqualValues(t, -8, w.get(t, id).Fence, "it counts as returned")
		require.Empty(t, s.Claim(t.Context(), claimOf(id)).Won)
	})
}

func TestAdmitSkipsLockedAndEndedRows(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		_, _, c := elected(t, w)
		locked, gone, free := w.insert(
			t,
			claimfake.Row{Type: "pdf", Keys: "k"},
			0,
		), w.insert(
			t,
			claimfake.Row{Type: "pdf", Keys: "k"},
			0,
		), w.insert(
			t,
			claimfake.Row{Type: "pdf", Keys: "k"},
			0,
		)
		require.Equal(t, dispatcherd.Cancelled, w.cancel(t, gone))
		unlock := w.lock(t, locked)
		require.Equal(t, []int64{int64(free)}, admit(t, w, c, 7, locked, gone, free))
		unlock()
		require.Equal(t, []int64{int64(locked)}, admit(t, w, c, 21, locked))
		require.EqualValues(t, 7, w.get(t, free).Fence, "its fence stays")
	})
}

func TestStatementsOfAnEarlierBeginChangeNothing(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, me, before := elected(t, w)
		id, admitted := w.insert(t, claimfake.Row{Type: "pdf", Keys: "k"}, 0), w.insert(t, claimfake.Row{Type: "pdf", Keys: "k"}, 0)
		admit(t, w, before, 7, admitted)
		w.limit(t, "k", 2)
		c := w.controller(s, me, beat(t, s, nil).Term)
		first, last, err := c.Begin(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2<<32), first)
		require.EqualValues(t, id, last, "the largest id of a row that waits")

		_, err = before.Admit(t.Context(), []permits.Permit{admission(w.get(t, id), 8, 0)})
		require.ErrorIs(t, err, limitstore.ErrNotController)
		_, err = before.Withdraw(t.Context(), []permits.Permit{permit(admitted, 7)})
		require.ErrorIs(t, err, limitstore.ErrNotController)
		_, err = before.Limits(t.Context())
		require.NoError(t, err)
		_, edited, err := c.Arrived(t.Context(), 0, 10)
		require.NoError(t, err)
		require.True(t, edited, "the record of the edit is still there")
		require.Zero(t, w.get(t, id).Fence)
		require.EqualValues(t, 7, w.get(t, admitted).Fence)

		_, _, err = w.controller(s, me, beat(t, s, nil).Term+1).Begin(t.Context())
		require.ErrorIs(t, err, limitstore.ErrNotController, "another term")
	})
}

func TestAnotherDispatcherBecomesTheController(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, me, c := elected(t, w)
		other := w.open(t)
		id, err := other.Join(t.Context())
		require.NoError(t, err)
		require.Zero(t, beat(t, other, nil).Term)
		term := beat(t, s, nil).Term
		require.EqualValues(t, 1, term)
		w.lose(t, me)
		require.Equal(t, term+1, beat(t, other, nil).Term)
		require.Zero(t, beat(t, s, nil).Term)
		_, _, err = w.controller(other, id, term+1).Begin(t.Context())
		require.NoError(t, err)
		_, _, err = c.Begin(t.Context())
		require.ErrorIs(t, err, limitstore.ErrNotController)
		require.Zero(t, beat(t, other, nil).Waiting&contract.KeysWait)
		w.limit(t, "k", 2)
		require.NotZero(t, beat(t, other, nil).Waiting&contract.KeysWait, "limits were edited")
	})
}

func TestControllerReadsWaitingJobsLimitsAndTypes(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, me, c := elected(t, w)
		var ids []int64
		for _, r := range []claimfake.Row{
			{Type: "pdf", Keys: "b"}, {Type: "pdf", Keys: "a"}, {Type: "pdf", Keys: "a"}, {Type: "pdf", Keys: "a", Priority: 3},
			{Type: "excel", Keys: "a"},
		} {
			ids = append(ids, int64(w.insert(t, r, -time.Duration(len(ids))*time.Minute)))
		}
		first := w.get(t, dispatcherd.JobID(ids[2]))
		idsOf := func(list []limitstore.Waiting) (ids []int64) {
			for _, w := range list {
				ids = append(ids, w.ID)
			}
			return ids
		}
		list, edited, err := c.Arrived(t.Context(), ids[0], 3)
		require.NoError(t, err)
		require.False(t, edited)
		require.Equal(t, ids[1:4], idsOf(list))
		require.Equal(t,
			limitstore.Waiting{Class: permits.Class{Keys: "a", Type: "pdf"}, Job: permits.Job{RunAt: first.RunAt, ID: ids[2]}},
			list[1])

		list, err = c.Heads(t.Context(), permits.Class{}, 10)
		require.NoError(t, err)
		require.Equal(t, []int64{ids[4], ids[2], ids[3], ids[0]}, idsOf(list))
		list, err = c.Heads(t.Context(), list[0].Class, 2)
		require.NoError(t, err)
		require.Equal(t, []int64{ids[2], ids[3]}, idsOf(list))

		class := permits.Class{Keys: "a", Type: "pdf"}
		jobs, err := c.Refill(t.Context(),
			[]permits.Refill{{Class: class, After: permits.Job{RunAt: first.RunAt, ID: ids[2]}}, {Class: class}}, 1)
		require.NoError(t, err)
		require.Len(t, jobs[0], 1)
		require.Equal(t, ids[1], jobs[0][0].ID)
		require.Equal(t, []permits.Job{{RunAt: first.RunAt, ID: ids[2]}}, jobs[1])

		w.limit(t, "a*", 4)
		_, edited, err = c.Arrived(t.Context(), 0, 10)
		require.NoError(t, err)
		require.True(t, edited)
		require.NotZero(t, beat(t, s, map[string]int{"pdf": 3, "excel": 0}).Waiting&contract.KeysWait)
		found, err := c.Limits(t.Context())
		require.NoError(t, err)
		require.Equal(t, []permits.Limit{{Key: "a*", Capacity: 4}}, found)
		named, err := c.Edits(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, map[string]*permits.Limit{"a*": {Key: "a*", Capacity: 4}}, named)
		_, edited, err = c.Arrived(t.Context(), 0, 10)
		require.NoError(t, err)
		require.False(t, edited)
		types, err := c.Types(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]limitstore.Type{"pdf": {Slots: 3, Dispatchers: []int32{me}}}, types)
	})
}

func TestAdoptedJobKeepsItsFence(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, _, c := elected(t, w)
		other := w.open(t)
		id, err := other.Join(t.Context())
		require.NoError(t, err)
		job := w.insert(t, claimfake.Row{Type: "pdf", Keys: "k"}, 0)
		admit(t, w, c, 7, job)
		request := claimOf(job)
		request.Sessions[0] = 1 << 16
		require.Len(t, s.Claim(t.Context(), request).Won, 1)
		res := other.Adopt(t.Context(),
			contract.AdoptRequest{Token: claimOf().Token, Jobs: []contract.ResumeOffer{{ID: job, Attempt: 1, From: 1 << 16, To: 2 << 16}}})
		require.Len(t, res.Jobs, 1)
		require.EqualValues(t, 7, res.Jobs[0].Fence)
		require.Equal(t, id, held(t, c)[0].Dispatcher)
	})
}
