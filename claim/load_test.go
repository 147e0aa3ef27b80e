package claim_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// loadAll loads payloads until none is left.
func loadAll(t testing.TB, s store, rows []contract.Won) (all contract.LoadResult) {
	t.Helper()
	for len(rows) > 0 {
		res := s.LoadPayloads(t.Context(), contract.LoadRequest{Rows: rows})
		require.Equal(t, contract.OK, res.Verdict)
		require.NotZero(t, len(res.Won)+len(res.Lost), "each answer is about at least one row")
		all.Won, all.Lost = append(all.Won, res.Won...), append(all.Lost, res.Lost...)
		rows = res.Rest
	}
	return all
}

func TestLargePayloadsAreLoadedAfterTheClaim(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		payload := largePayload(30_000)
		small := w.insert(t, claimfake.Row{Type: "pdf", Payload: []byte(`{"page": 1}`)}, 0)
		large := w.insert(t, claimfake.Row{Type: "pdf", Priority: 4, Payload: payload, MaxAttempts: 7, Timeout: time.Second}, 0)
		ended := w.insert(t, claimfake.Row{Type: "pdf", Payload: payload}, 0)
		res := s.Claim(t.Context(), claimOf(small, large, ended))
		require.Equal(t, contract.OK, res.Verdict)
		require.Equal(t, []dispatcherd.JobID{small}, wonIDs(res.Won))
		require.Equal(t, []dispatcherd.JobID{large, ended}, wonIDs(res.Loading))
		for _, id := range []dispatcherd.JobID{large, ended} {
			require.Equal(t, dispatcherd.Running, w.get(t, id).Status)
		}
		require.Empty(t, finish(t, s, contract.Finish{ID: ended, Attempt: 1, Outcome: contract.Released}))

		loaded := loadAll(t, s, res.Loading)
		require.Equal(t, []dispatcherd.JobID{ended}, loaded.Lost)
		require.Equal(
			t,
			[]contract.Won{{
				ID: large, Type: "pdf", Priority: 4, Attempt: 1, MaxAttempts: 7, Timeout: time.Second,
				Delivery: contract.Delivery{Payload: payload},
			}},
			loaded.Won,
		)
	})
}

func TestUnreadablePayloadDoesNotAffectOtherRows(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		for _, size := range []int{30_000, 6_000} { // above and below claim.SmallPayload
			s := joined(t, w)
			one := w.insert(t, claimfake.Row{Type: "pdf", Payload: largePayload(size)}, 0)
			lost := w.insert(t, claimfake.Row{Type: "pdf", Payload: largePayload(size)}, 0)
			w.losePayload(t, lost)
			two := w.insert(t, claimfake.Row{Type: "pdf", Payload: largePayload(size)}, 0)
			small := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
			res := s.Claim(t.Context(), claimOf(one, lost, two, small))
			require.Equal(t, contract.OK, res.Verdict)
			require.Empty(t, res.Unclaimable)
			all := slices.Concat(loadAll(t, s, res.Loading).Won, res.Won)
			require.Equal(t, []dispatcherd.JobID{one, lost, two, small}, wonIDs(all))
			for _, won := range all {
				require.Equal(t, won.ID == lost, won.Unfit != "", "%d bytes: %s", size, won.Unfit)
				require.Equal(t, won.ID == lost, len(won.Payload) == 0)
				require.EqualValues(t, 1, won.Attempt)
			}
		}
	})
}

func TestClaimReturnsTheLaneThatARowHasNow(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		for range 3 { // the requests name no lane, the former lane, or a third one
			id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
			w.move(t, id, "größe", 10)
			won := take(t, s, id)
			require.Equal(t, "größe", won.Type)
			require.EqualValues(t, 10, won.Priority)
		}
	})
}

// A portion has few megabytes, so that its statement ends long before the timeout.
func TestPayloadsAreLoadedInPortions(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live ALTER COLUMN payload SET STORAGE EXTERNAL`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, payload) SELECT 'pdf', to_jsonb(repeat('x', 900000)) FROM generate_series(1, 9)`)
	res := s.Claim(t.Context(), claimOf(1, 2, 3, 4, 5, 6, 7, 8, 9))
	require.Equal(t, contract.OK, res.Verdict)
	require.Len(t, res.Loading, 9)
	rows, portions := res.Loading, 0
	for ; len(rows) > 0; portions++ {
		part := s.LoadPayloads(t.Context(), contract.LoadRequest{Rows: rows})
		require.Equal(t, contract.OK, part.Verdict)
		require.Empty(t, part.Lost)
		require.Len(t, part.Won, min(4, len(rows)))
		rows = part.Rest
	}
	require.Equal(t, 3, portions)
}

func numbers(number string, n int) string {
	return "[" + strings.Repeat(number+",", n-1) + number + "]"
}

// A payload that is stored in a few bytes is loaded after the claim if it is large, and a short one of long numbers is claimed.
// Workers receive no number of more than 1,024 characters.
func TestCompressedPayloadIsClaimedByItsUncompressedSize(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	text := `"` + strings.Repeat("x", 2*claim.SmallPayload) + `"`
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, payload) VALUES ('pdf', $1), ('pdf', $2), ('pdf', $3)`,
		text, numbers("1e131071", 58), numbers("1e131071", 3))
	var stored int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT pg_column_size(payload) FROM dispatcherd.jobs WHERE id = 1`).Scan(&stored))
	require.Less(t, stored, claim.SmallPayload/8)
	for i := range 3 {
		res := s.Claim(t.Context(), claimOf(dispatcherd.JobID(i+1))) // one row, because a claim converts payloads for a limited time
		require.Equal(t, i == 0, len(res.Loading) == 1)
		all := slices.Concat(loadAll(t, s, res.Loading).Won, res.Won)
		require.Len(t, all, 1)
		if i == 0 {
			require.Equal(t, text, string(all[0].Payload))
			continue
		}
		require.Nil(t, all[0].Payload)
		require.Contains(t, all[0].Unfit, "1,024 characters")
	}
}

// Claims of 1,000 rows each.
func BenchmarkClaim(b *testing.B) {
	for _, size := range []int{16, 600} {
		b.Run(fmt.Sprintf("payload=%d", size), func(b *testing.B) {
			dsn := pgtest.New(b)
			db := connect(b, dsn)
			exec(b, db, `INSERT INTO dispatcherd.jobs (type, payload) SELECT 'pdf', to_jsonb($2::text) FROM generate_series(1, $1::int)`,
				1000*(b.N+5), string(bytes.Repeat([]byte("x"), size)))
			exec(b, db, `VACUUM ANALYZE dispatcherd.jobs_live`)
			exec(b, db, `CHECKPOINT`)
			s := open(b, claim.Config{DSN: dsn, Lease: time.Hour})
			_, err := s.Join(b.Context())
			require.NoError(b, err)
			next := dispatcherd.JobID(1)
			run := func() {
				ids := make([]dispatcherd.JobID, 1000)
				for i := range ids {
					ids[i] = next
					next++
				}
				req := claimOf(ids...)
				req.Lane = contract.Lane{Type: "pdf"}
				require.Len(b, s.Claim(b.Context(), req).Won, 1000)
			}
			for range 5 {
				run()
			}
			before := serverCPU(b, db, "dispatcherd claim %")
			b.ResetTimer()
			for range b.N {
				run()
			}
			b.ReportMetric(float64((serverCPU(b, db, "dispatcherd claim %")-before).Microseconds())/float64(b.N), "server-µs/op")
		})
	}
}

// Zero says that there is no deadline, so a deadline that passes now counts as passed.
func TestTimeLeftOfAClaimedRow(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		left := func(deadline time.Duration) time.Duration {
			return take(t, s, w.insert(t, claimfake.Row{Type: "pdf", Deadline: deadline.Microseconds()}, 0)).Left
		}
		require.Zero(t, left(0))
		require.InDelta(t, time.Hour, left(time.Hour), float64(time.Minute))
		require.Negative(t, left(time.Microsecond))
		require.Equal(t, -time.Millisecond, left(-time.Hour))
	})
}
