package claim_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// Whether a lane's rows are of one instant is a hint, which may be wrong for any
// part of them: what is read on is the exact top of a share's rows.
func TestReadingOnAmongRowsOfOneInstantIsExact(t *testing.T) {
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	rng := rand.New(rand.NewPCG(3, 5))
	exec(t, db, `SELECT setseed(0.5)`)
	// Gaps of some ids and of thousands; a few rows of each instant have ids before those of another one.
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type, priority, run_at)
		SELECT g + g / 3000 * 60000, CASE WHEN random() < 0.6 THEN 'a' ELSE 'b' END, (random() < 0.4)::int,
			date_trunc('hour', now()) - (1 + (g / 3000 + (random() < 0.05)::int) % 5) * interval '1 hour'
				+ (g % 5000 / 4800) * g * interval '1 microsecond'
		FROM generate_series(1, 30000) g WHERE random() < 0.9 AND g % 1000 > 40`)
	s := open(t, claim.Config{DSN: dsn})
	read := func(lane contract.LaneQuery) (keys []contract.Key) {
		// Beside it one that is foreign, and one without a share.
		lanes := []contract.LaneQuery{{Type: "b", Limit: 3, Share: lane.Share, NonLocal: true}, lane, {Type: "b", Priority: 1, Limit: 2}}
		res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: lanes})
		require.Equal(t, contract.OK, res.Verdict)
		of := [3]int{}
		for _, c := range res.Candidates {
			if of[c.Lane]++; c.Lane == 1 {
				keys = append(keys, c.Key)
			}
		}
		require.Equal(t, [2]int{3, 2}, [2]int{of[0], of[2]})
		return keys
	}
	for _, share := range []contract.Share{
		{From: 0, To: 16_384, Block: 3}, {From: 30_000, To: 65_536, Block: 6}, {From: 20_000, To: 30_000, Block: 5}, {From: 7, To: 600, Block: 4},
	} {
		for p := range dispatcherd.Priority(2) {
			var own []contract.Key
			for _, k := range read(contract.LaneQuery{Type: "a", Priority: p, Limit: 20_000}) {
				if share.Owns(k.ID) {
					own = append(own, k)
				}
			}
			require.NotEmpty(t, own)
			for range 60 {
				i := rng.IntN(len(own))
				after, limit := own[i], 16+rng.IntN(300)
				if rng.IntN(3) == 0 {
					after.ID += dispatcherd.JobID(rng.IntN(100)) // a place without a row
				}
				for i < len(own) && !after.Less(own[i]) {
					i++
				}
				want := own[i:min(len(own), i+limit)]
				got := read(contract.LaneQuery{Type: "a", Priority: p, Limit: limit, After: after, Share: share, EqualTimestamps: true})
				require.Len(t, got, len(want), "%v after %v", share, after)
				if len(want) > 0 {
					require.Equal(t, want, got)
				}
			}
		}
	}
}

// What belongs to three others is not read over.
func TestReadingOnAmongRowsOfOneInstantReadsOnlyTheOwn(t *testing.T) {
	const rows, limit = 20_000, 500
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type) SELECT 'a' FROM generate_series(1, $1::int)`, rows)
	s := open(t, claim.Config{DSN: dsn})
	lane := contract.LaneQuery{Type: "a", Limit: limit, Share: contract.ShareOf(250, contract.Others{SmallerIDs: 500, LargerIDs: 250, Least: 250})}
	fetches, own := 0, 0
	for {
		res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{lane}})
		require.Equal(t, contract.OK, res.Verdict)
		fetches++
		own += len(res.Candidates)
		if len(res.Candidates) < limit {
			break
		}
		lane.After, lane.EqualTimestamps = res.Candidates[limit-1].Key, true
	}
	require.InDelta(t, rows/4, own, rows/20)
	s.Close() // a session reports its counters when it ends, at the latest
	var read int64
	require.Eventually(t, func() bool {
		var scans int64
		require.NoError(t, db.QueryRow(context.Background(),
			`SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_live_lanes'`).Scan(&scans, &read))
		return scans >= int64(fetches)
	}, 10*time.Second, 20*time.Millisecond)
	// The first fetch reads over the others' rows, and so does what looks for more at the end.
	require.Less(t, read, int64(own+8*limit))
}

// Ids that only the owner of the table can have given out are read like any others.
func TestReadingOnUpToTheLastIDOfAll(t *testing.T) {
	const rows = 40
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type) SELECT 9223372036854775807 - g, 'a' FROM generate_series(0, $1::int - 1) g`, rows)
	s := open(t, claim.Config{DSN: dsn})
	all := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "a", Limit: rows + 1}}}).Candidates
	require.Len(t, all, rows)
	share := contract.Share{From: 0, To: 40_000, Block: 3}
	for i := range all {
		own := 0
		for _, c := range all[i+1:] {
			if share.Owns(c.Key.ID) {
				own++
			}
		}
		res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{
			{Type: "a", Limit: rows + 1, After: all[i].Key, Share: share, EqualTimestamps: true}}})
		require.Equal(t, contract.OK, res.Verdict, "after %d", all[i].Key.ID)
		require.Len(t, res.Candidates, own, "after %d", all[i].Key.ID)
	}
	require.Equal(t, dispatcherd.JobID(math.MaxInt64), all[rows-1].Key.ID)
}
