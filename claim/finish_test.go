package claim_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// A worker refuses what is nested too deep and numbers that are too long. The store
// says so, and returns the other payloads.
func TestClaimChecksPayloads(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		payloads := []string{`{"x": 1e5000}`, `{"x": 1}`, strings.Repeat("[", 200) + strings.Repeat("]", 200)}
		var ids []dispatcherd.JobID
		for _, payload := range payloads {
			ids = append(ids, w.insert(t, claimfake.Row{Type: "x", MaxAttempts: 3, Payload: []byte(payload)}, 0))
		}
		req := claimOf(ids...)
		for _, res := range []contract.ClaimResult{s.Claim(t.Context(), req), s.Resolve(t.Context(), req)} {
			won := map[dispatcherd.JobID]contract.Won{}
			for _, w := range append(res.Won, loadAll(t, s, res.Loading).Won...) {
				won[w.ID] = w
			}
			require.Equal(
				t,
				"the payload cannot be sent to a worker: it contains a number of more than 1,024 characters, written out",
				won[ids[0]].Unfit,
			)
			require.Nil(t, won[ids[0]].Payload)
			require.Equal(t, payloads[1], string(won[ids[1]].Payload))
			require.Empty(t, won[ids[1]].Unfit)
			require.Contains(t, won[ids[2]].Unfit, "more than 128 nested arrays and objects")
			require.Nil(t, won[ids[2]].Payload)
		}
	})
}

// If a finish is repeated, a row counts as ended only if its status is the one
// to which the outcome leads. A row that another dispatcher released was
// therefore not finished by the first execution.
func TestRepeatedFinishIsStaleAfterAReleaseByAnotherDispatcher(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, other, run := joinedPair(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, s, id)
		w.lose(t, run)
		_, err := other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Equal(t, 1, release(t, other))
		again := func(o contract.Outcome) []dispatcherd.JobID {
			res := s.Finish(t.Context(), contract.FinishRequest{Again: true, Items: []contract.Finish{{ID: id, Attempt: 1, Outcome: o}}})
			require.Equal(t, contract.OK, res.Verdict)
			return res.Stale
		}
		require.Equal(t, []dispatcherd.JobID{id}, again(contract.Succeeded))
		require.Equal(t, []dispatcherd.JobID{id}, again(contract.Cancelled))
		require.Empty(t, again(contract.Released))
		require.ErrorIs(t, s.SetSubscribed(t.Context(), true), claim.ErrLeaseLost, "producers do not notify a lost dispatcher")
	})
}

// A row that Postgres does not release is set aside for a pause, and is no failure.
func TestRowThatIsNotReleasedIsSetAside(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	seen := new(failures)
	dead, s := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn, Observer: seen})
	lost, err := dead.Join(t.Context())
	require.NoError(t, err)
	_, err = s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 2, 1, 1)
	require.Len(t, dead.Claim(t.Context(), claimOf(1)).Won, 1)
	lose(t, db, lost)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live ADD CONSTRAINT stuck CHECK (crashes = 0) NOT VALID`)
	res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.False(t, res.LeaseLost)
	require.NotZero(t, res.Waiting&contract.DispatcherLost, "the deadline of Sweep is longer")
	require.Zero(t, release(t, s))
	require.Empty(t, seen.all())
	require.Contains(t, s.WhyAside(1), "stuck")

	exec(t, db, `ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT stuck`)
	s.EndPauses()
	require.Equal(t, 1, release(t, s))
}

// The jobs of one lost dispatcher cannot be released, and Postgres does not say that a row is the cause. The release of the jobs of other
// lost dispatchers goes on.
func TestFailedReleaseDoesNotStopThatOfOtherDispatchers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 2, 1, 1)
	for id := range dispatcherd.JobID(2) {
		dead := open(t, claim.Config{DSN: dsn})
		run, err := dead.Join(t.Context())
		require.NoError(t, err)
		require.Len(t, dead.Claim(t.Context(), claimOf(id+1)).Won, 1)
		lose(t, db, run)
	}
	exec(t, db, `CREATE FUNCTION public.stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'stuck' USING ERRCODE = '53100';
	END $$`)
	exec(t, db, `CREATE TRIGGER stuck BEFORE UPDATE ON dispatcherd.jobs_live FOR EACH ROW WHEN (old.id = 1) EXECUTE FUNCTION public.stuck()`)
	n, err := s.Release(t.Context())
	require.ErrorContains(t, err, "stuck")
	require.Equal(t, 1, n, "the job of the other lost dispatcher")
	exec(t, db, `DROP TRIGGER stuck ON dispatcherd.jobs_live`)
	require.Equal(t, 1, release(t, s))
}

// A placement is stored in each final status and with each failed attempt, in a database
// with any encoding. An attempt that did not start has none.
func TestPlacementIsStoredWithTheEnd(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	fill(t, db, 6, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2, 3, 4, 5, 6)).Won, 6)
	p := contract.Placement{
		Worker: "drücker \"7\" \U0001F5A8", Slot: 7, Waited: 1.5, Ran: 0.25, WaitedFor: "CapacityBusy",
		Score: contract.ScoreTerms{Base: 1024, Age: 1.5, Rarity: 250},
	}
	var items []contract.Finish
	for i, o := range []contract.Outcome{contract.Succeeded, contract.FailedFinal, contract.Cancelled, contract.Quarantined, contract.Retry} {
		items = append(
			items,
			contract.Finish{
				ID:        dispatcherd.JobID(i + 1),
				Attempt:   1,
				Outcome:   o,
				Error:     map[bool]string{true: "e"}[o == contract.Retry],
				Placement: &p,
			},
		)
	}
	items = append(items, contract.Finish{ID: 6, Attempt: 1, Outcome: contract.Succeeded})
	require.Empty(t, finish(t, s, items...))
	for id := range dispatcherd.JobID(4) {
		job, err := claim.Jobs{DB: db}.Get(t.Context(), id+1)
		require.NoError(t, err)
		require.Equal(t, &p, job.Placement, job.Status)
	}
	require.Equal(t, p.Worker, one[string](t, db, `SELECT errors->0->'placement'->>'worker' FROM dispatcherd.jobs WHERE id = 5`))
	require.True(t, one[bool](t, db, `SELECT placement IS NULL FROM dispatcherd.jobs WHERE id = 6`))
	require.True(
		t,
		one[bool](t, db, `SELECT octet_length(placement::text) = length(placement::text) FROM dispatcherd.jobs WHERE id = 1`),
		"ASCII",
	)
}

// The end of a log is stored in each final status and with a retry, whatever the worker wrote, in
// a database with any encoding. The next attempt without a log removes it.
func TestLogIsStoredWithTheEnd(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	fill(t, db, 7, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2, 3, 4, 5, 6, 7)).Won, 7)
	text := "warn: ü \"\\ \x1b[31m \x00 \xff \U0001F5A8\n"
	var items []contract.Finish
	for i, o := range []contract.Outcome{
		contract.Succeeded, contract.FailedFinal, contract.Cancelled, contract.Quarantined, contract.Retry, contract.Released,
	} {
		items = append(items, contract.Finish{ID: dispatcherd.JobID(i + 1), Attempt: 1, Outcome: o})
	}
	for i := range items {
		items[i].Log = text
	}
	items[0].Result = []byte(`{"a": 1}`)
	items = append(items, contract.Finish{ID: 7, Attempt: 1, Outcome: contract.FailedFinal})
	res := s.Finish(
		t.Context(),
		contract.FinishRequest{Items: items},
	)
	require.Equal(t, contract.FinishResult{}, res)
	log := func(id dispatcherd.JobID) (text string) {
		job, err := claim.Jobs{DB: db}.Get(t.Context(), id)
		require.NoError(t, err)
		if job.Log != nil {
			require.NoError(t, json.Unmarshal(job.Log, &text))
		}
		return text
	}
	for id := range dispatcherd.JobID(6) {
		require.Equal(t, "warn: ü \"\\ \x1b[31m \uFFFD \uFFFD \U0001F5A8\n", log(id+1), id+1)
	}
	require.Empty(t, log(7))
	require.Equal(t, `{"a": 1}`, one[string](t, db, `SELECT result::text FROM dispatcherd.jobs WHERE id = 1 AND status = 'done'`))
	require.True(t, one[bool](t, db, `SELECT bool_and(octet_length(log::text) = length(log::text)) FROM dispatcherd.jobs`), "ASCII")
	require.Len(t, s.Claim(t.Context(), claimOf(6)).Won, 1)
	require.NotEmpty(t, log(6), "of the last attempt that ended")
	require.Empty(t, finish(t, s, contract.Finish{ID: 6, Attempt: 2, Outcome: contract.Released}))
	require.Empty(t, log(6))

	require.Len(t, s.Claim(t.Context(), claimOf(6)).Won, 1)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET log = '"of an earlier attempt"' WHERE id = 6`)
	released, err := s.Leave(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, released)
	require.Empty(t, log(6))
}
