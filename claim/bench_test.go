package claim_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Figures depend on the server: a private one runs without fsync. To measure
// with it, point DISPATCHERD_TEST_DATABASE_URL at a server of your own.

// fill inserts n jobs over so many types and priorities.
func fill(t testing.TB, db *pgx.Conn, n, types, priorities int) {
	t.Helper()
	start := time.Now()
	inserted, err := claim.Jobs{DB: db}.InsertMany(t.Context(), generated(n, types, priorities))
	require.NoError(t, err)
	require.EqualValues(t, n, inserted)
	t.Logf("COPY: %.0f jobs/s", float64(n)/time.Since(start).Seconds())
}

func generated(n, types, priorities int) iter.Seq2[claim.New, error] {
	names := make([]string, types)
	for i := range names {
		names[i] = fmt.Sprintf("type%03d", i)
	}
	return func(yield func(claim.New, error) bool) {
		for i := range n {
			job := claim.New{Type: names[i%types], Priority: dispatcherd.Priority(i / types % priorities), Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
			if !yield(job, nil) {
				return
			}
		}
	}
}

func lanes(types, priorities, limit int) []dispatcherd.Lane {
	var list []dispatcherd.Lane
	for i := range types {
		for p := range priorities {
			list = append(list, dispatcherd.Lane{Type: fmt.Sprintf("type%03d", i), Priority: dispatcherd.Priority(p), Limit: limit})
		}
	}
	return list
}

// drain fetches, claims and finishes n jobs in batches, one statement at a time.
func drain(t testing.TB, s *claim.Store, n, batch int, list []dispatcherd.Lane) {
	t.Helper()
	for done := 0; done < n; {
		res := s.Fetch(t.Context(), dispatcherd.FetchRequest{Lanes: list})
		require.Equal(t, dispatcherd.OK, res.Verdict)
		require.NotEmpty(t, res.Candidates)
		ids := make([]dispatcherd.JobID, 0, len(res.Candidates))
		for _, c := range res.Candidates {
			list[c.Lane].After = c.Key
			ids = append(ids, c.Key.ID)
		}
		slices.Sort(ids)
		won := s.Claim(t.Context(), claimOf(ids...))
		require.Equal(t, dispatcherd.OK, won.Verdict)
		items := make([]dispatcherd.Finish, len(won.Won))
		for i, w := range won.Won {
			items[i] = dispatcherd.Finish{ID: w.ID, Attempt: w.Attempt, Result: []byte(`{"ok":true}`)}
		}
		fin := s.Finish(t.Context(), dispatcherd.FinishRequest{Items: items})
		require.Equal(t, dispatcherd.OK, fin.Verdict)
		require.Empty(t, fin.Stale)
		done += len(items)
	}
}

// Fetch, claim and finish of one job each, in batches of 1,000.
func BenchmarkJob(b *testing.B) {
	for _, shape := range []struct{ types, priorities int }{{1, 1}, {10, 11}} {
		b.Run(fmt.Sprintf("types=%d/priorities=%d", shape.types, shape.priorities), func(b *testing.B) {
			dsn := pgtest.New(b)
			db := connect(b, dsn)
			fill(b, db, b.N, shape.types, shape.priorities)
			exec(b, db, `VACUUM ANALYZE dispatcherd.jobs_live`)
			exec(b, db, `CHECKPOINT`)
			s := open(b, claim.Config{DSN: dsn})
			_, err := s.Join(b.Context())
			require.NoError(b, err)
			list := lanes(shape.types, shape.priorities, max(1, 1000/(shape.types*shape.priorities)))
			drain(b, s, 0, 1000, list)
			b.ReportAllocs()
			b.ResetTimer()
			drain(b, s, b.N, 1000, list)
		})
	}
}

// The candidate query over 110 lanes of 1 M pending rows: the goal is 2 ms.
func BenchmarkFetch(b *testing.B) {
	dsn := pgtest.New(b)
	db := connect(b, dsn)
	fill(b, db, 1_000_000, 10, 11)
	s := open(b, claim.Config{DSN: dsn})
	for _, limit := range []int{2, 10} {
		list := lanes(10, 11, limit)
		b.Run(fmt.Sprintf("lanes=110/limit=%d", limit), func(b *testing.B) {
			for b.Loop() {
				require.Len(b, s.Fetch(b.Context(), dispatcherd.FetchRequest{Lanes: list}).Candidates, 110*limit)
			}
		})
	}
}
