package claim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// named returns the lane of the type at index typ of a request.
func named(typ int, p dispatcherd.Priority, c dispatcherd.DurationClass) contract.NamedLane {
	return contract.NamedLane{Type: typ, Priority: p, Class: c}
}

// A lane is a type, a priority and a class. A fetch lists the lanes of jobs with an expected duration, whose rows may be due or not.
func TestFetchReadsAndNamesTheLanesOfExpectedDurations(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		ids := map[contract.Lane][]dispatcherd.JobID{}
		lanes := []contract.Lane{
			{Type: "pdf"},
			{Type: "pdf", Class: 1},
			{Type: "pdf", Class: 2},
			{Type: "pdf", Class: 8},
			{Type: "pdf", Priority: 10, Class: 1},
			{Type: "pdf", Priority: 10, Class: 8},
			{Type: "pdf", Priority: 3},
			{Type: "tiff", Priority: 3, Class: 5},
		}
		for n := range 24 {
			l := lanes[n%len(lanes)]
			r := claimfake.Row{Type: l.Type, Priority: l.Priority}
			if l.Class != dispatcherd.NoDuration {
				r.Expected = time.Millisecond << l.Class.Octave()
			}
			ids[l] = append(ids[l], w.insert(t, r, time.Duration(n-10)*time.Minute))
		}
		request := contract.FetchRequest{Classes: []string{"excel", "pdf", "tiff"}}
		for _, l := range lanes {
			request.Lanes = append(request.Lanes, contract.LaneQuery{Type: l.Type, Priority: l.Priority, Class: l.Class, Limit: 2})
		}
		want := []contract.NamedLane{named(1, 10, 8), named(1, 10, 1), named(1, 0, 8), named(1, 0, 2), named(1, 0, 1), named(2, 3, 5)}
		res := s.Fetch(t.Context(), request)
		require.Equal(t, want, res.Named)
		got := map[contract.Lane][]dispatcherd.JobID{}
		for _, c := range res.Candidates {
			got[lanes[c.Lane]] = append(got[lanes[c.Lane]], c.Key.ID)
		}
		for l := range ids { // order-free: each lane alone
			require.Equal(t, ids[l][:2], got[l], "%v", l)
		}
		for _, id := range append(ids[lanes[1]], ids[lanes[2]]...) {
			w.cancel(t, id)
		}
		take(t, s, ids[lanes[7]][0])
		request = contract.FetchRequest{Classes: []string{"tiff", "pdf"}}
		require.Equal(t, []contract.NamedLane{named(0, 3, 5), named(1, 10, 8), named(1, 10, 1), named(1, 0, 8)},
			s.Fetch(t.Context(), request).Named, "rows that wait remain")
		for _, id := range ids[lanes[7]][1:] {
			w.cancel(t, id)
		}
		require.Len(t, s.Fetch(t.Context(), request).Named, 3, "rows that run are in no lane")
		require.Empty(t, s.Fetch(t.Context(), contract.FetchRequest{Lanes: request.Lanes}).Named)
	})
}

// One index descent finds a lane, independent of its rows and of the rows of other types.
func TestListOfLanesReadsOneRowPerLane(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t,
		db,
		`INSERT INTO dispatcherd.jobs (type, priority, expected_ms) SELECT 'type' || i % 3, i / 3 % 11, 1 << (12 + i / 33 % 9)
			FROM generate_series(1, 50000) i`,
	)
	s := open(t, claim.Config{DSN: dsn})
	for range 10 {
		require.Len(t, s.Fetch(t.Context(), contract.FetchRequest{Classes: []string{"type0", "type1", "type2", "type3"}}).Named, 3*11*5)
	}
	s.Close() // a session reports its counters at its end at the latest
	require.Eventually(t, func() bool {
		var scans, read int64
		require.NoError(t, db.QueryRow(t.Context(),
			`SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_live_expected'`).Scan(&scans, &read))
		require.LessOrEqual(t, read, int64(10*3*11*5))
		return scans == 10*(3*11*5+4)
	}, 30*time.Second, 20*time.Millisecond)
	require.Zero(t, one[int64](t, db, `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'jobs_live'`))
}

// The count of pending rows adds up both indexes of lanes.
func TestPendingRowsWithAnExpectedDurationAreCounted(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, expected_ms) SELECT 'both', nullif(i % 3, 0) FROM generate_series(1, 3000) i`)
	exec(t,
		db,
		`INSERT INTO dispatcherd.jobs (type, expected_ms, priority, run_at)
			VALUES ('named', 1 << 20, 3, now() - interval '1 hour'), ('named', 1, 0, now() + interval '1 day')`,
	)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, run_at) VALUES ('unnamed', now() - interval '2 hours')`)
	rows, oldest, portions := counted(t, s)
	require.Equal(t, map[string]int{"both": 3000, "named": 2, "unnamed": 1}, rows)
	require.InDelta(t, time.Hour.Seconds(), oldest["named"].Seconds(), 60)
	require.InDelta(t, 2*time.Hour.Seconds(), oldest["unnamed"].Seconds(), 60)
	require.Equal(t, 2, portions)
}

// A notification of a single row names its class.
func TestNotificationNamesTheClass(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	require.NoError(t, s.SetSubscribed(t.Context(), true))
	exec(t, db, `LISTEN dispatcherd`)
	for expected, lane := range map[string]string{"NULL": " 3 ", "1": " 3/0 ", "65536": " 3/2 ", "2147483647": " 3/7 "} {
		exec(t, db, `INSERT INTO dispatcherd.jobs (type, priority, expected_ms) VALUES ('pdf', 3, `+expected+`)`)
		note, err := db.WaitForNotification(t.Context())
		require.NoError(t, err)
		require.Contains(t, note.Payload, lane)
	}
}

// A dispatcher that takes over a running row learns its class, and each move of the row keeps the expected duration.
func TestExpectedDurationIsKeptByEveryMove(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type, expected_ms) SELECT i, 'pdf', 70000 FROM generate_series(1, 4) i`)
	request := claimOf(1, 2, 3)
	session := contract.Fingerprint(7 << 16)
	request.Sessions = []contract.Fingerprint{session, session, session}
	require.Len(t, s.Claim(t.Context(), request).Won, 3)
	res := s.Adopt(t.Context(),
		contract.AdoptRequest{Token: claimOf(1).Token, Jobs: []contract.ResumeOffer{{ID: 1, Attempt: 1, From: session, To: session}}})
	require.Len(t, res.Jobs, 1)
	require.EqualValues(t, 3, res.Jobs[0].Class)
	require.Empty(t,
		finish(t, s, contract.Finish{ID: 1, Attempt: 1}, contract.Finish{ID: 2, Attempt: 1, Outcome: contract.FailedFinal, Error: "x"},
			contract.Finish{ID: 3, Attempt: 1, Outcome: contract.Retry, Error: "x"}),
	)
	jobs := claim.Jobs{DB: db}
	_, err := jobs.Cancel(t.Context(), 4)
	require.NoError(t, err)
	require.NoError(t, jobs.Retry(t.Context(), 2))
	require.NoError(t, jobs.Retry(t.Context(), 4))
	require.Equal(t, 4, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs WHERE expected_ms = 70000`))
	require.Equal(t, 3, one[int](t, db, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' AND expected_ms = 70000`))
	job, err := jobs.Get(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 70000, *job.ExpectedMS)
}
