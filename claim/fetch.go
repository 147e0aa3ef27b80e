package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// fetchSQL reads the heads of lanes: one short index scan each, aggregated into
// one row a lane. Row 0 is the clock. Inside a lane the order of score is the
// order of (run_at, id) under any weights, so this is the exact top k. The index
// has id + 0 as its last key, so that no statement reaches a row by id through it.
//
// shareSQL is the same for lanes of which only a share is wanted, or the rest:
// $6 and $7 are its bounds, $8 says which, $9 how large its blocks are. See
// contract.Share.
//
// lookSQL and lookShareSQL read only what lies before a bound, $6 and $7, or $10
// and $11: with dead index entries in front, which a held snapshot keeps there,
// they take long, and their range ends where reading on begins.
const (
	fetchSQL = lanesOf + `$5::int[])
	WITH ORDINALITY AS l (type, priority, after_run_at, after_id, most, lane)` + headsOf + upTo

	shareSQL = lanesOf + `$5::int[], $6::int[], $7::int[], $8::boolean[], $9::int[])
	WITH ORDINALITY AS l (type, priority, after_run_at, after_id, most, low, high, apart, block, lane)` + headsOf + ofShare + upTo

	lookSQL = lanesOf + `$5::int[], $6::timestamptz[], $7::bigint[])
	WITH ORDINALITY AS l (type, priority, after_run_at, after_id, most, before_run_at, before_id, lane)` + headsOf + beforeBound + upTo

	lookShareSQL = lanesOf + `$5::int[], $6::int[], $7::int[], $8::boolean[], $9::int[], $10::timestamptz[], $11::bigint[])
	WITH ORDINALITY AS l (type, priority, after_run_at, after_id, most, low, high, apart, block, before_run_at, before_id, lane)` + headsOf + ofShare + beforeBound + upTo

	lanesOf = `
SELECT 0, ARRAY[now()], NULL::bigint[]
UNION ALL
SELECT lane::int, due, ids
FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[], `
	headsOf = `
CROSS JOIN LATERAL (
	SELECT array_agg(run_at::timestamptz) AS due, array_agg(id::bigint) AS ids
	FROM (
		SELECT j.run_at, j.id FROM dispatcherd.jobs_live j
		WHERE j.type = l.type AND j.priority = l.priority AND j.status = 'pending'
			AND (j.run_at, j.id + 0) > (l.after_run_at, l.after_id)`
	ofShare = `
			AND ((j.id + 0 >> l.block & 65535) * 40503 & 65535 BETWEEN l.low AND l.high) <> l.apart`
	beforeBound = `
			AND (j.run_at, j.id + 0) < (l.before_run_at, l.before_id)`
	upTo = `
		ORDER BY j.run_at, j.id + 0 LIMIT l.most
	) head
) heads
WHERE ids IS NOT NULL`
)

// lookTimeout bounds a look, which reads over every dead index entry that a held
// snapshot keeps: a hundred million of them or so.
const lookTimeout = 2 * time.Minute

// Fetch reads the first rows of the lanes. It changes nothing, so its verdict
// is never Unknown. A look runs beside other fetches.
func (s *Store) Fetch(ctx context.Context, req contract.FetchRequest) contract.FetchResult {
	link, op := s.fetch, OpFetch
	if req.Backfill {
		link, op = s.look, OpLook
	}
	var res contract.FetchResult
	err := link.do(ctx, op, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var err error
		res, err = link.readLanes(ctx, conn, req)
		return len(res.Candidates), err
	})
	if err != nil {
		return contract.FetchResult{Verdict: contract.Refused}
	}
	return res
}

func (l *link) readLanes(ctx context.Context, conn *pgx.Conn, req contract.FetchRequest) (contract.FetchResult, error) {
	most := 0
	for _, lane := range req.Lanes {
		most += lane.Limit
	}
	res := contract.FetchResult{Candidates: make([]contract.Candidate, 0, min(most, 4096))}
	statement, params := "fetch", l.encodeLanes(req)
	if slices.ContainsFunc(req.Lanes, func(l contract.LaneQuery) bool { return !l.Share.All() }) {
		statement, params = "share", append(params, encodeShares(req)...)
	}
	switch {
	case !req.Backfill && jumps(req.Lanes):
		statement, params = "jump", append(params, encodeJumps(req)...)
	case req.Backfill:
		statement, params = "look-"+statement, append(params, encodeBounds(req)...)
	}
	rows := execute(ctx, conn, statement, params...)
	var bad error
	for rows.NextRow() {
		if err := readLane(&res, rows.Values()); err != nil {
			bad = err
		}
	}
	if _, err := rows.Close(); err != nil {
		return res, err
	}
	return res, bad
}

// readLane reads a row of a fetch: the lane's number from 1, and the run_at and
// ids of its candidates; or 0 and the database's clock.
func readLane(res *contract.FetchResult, v [][]byte) error {
	if len(v) != 3 || len(v[0]) != 4 {
		return fmt.Errorf("postgres sent a lane of %d columns, must be 3", len(v))
	}
	lane, first := int(readInt4(v[0]))-1, len(res.Candidates)
	err := readInt8s(v[1], func(_ int, due int64) {
		res.Candidates = append(res.Candidates, contract.Candidate{Lane: lane, Key: contract.Key{RunAt: due + postgresEpoch}})
	})
	added := res.Candidates[first:]
	switch {
	case err != nil:
	case lane >= 0:
		var ids int
		err = readInt8s(v[2], func(i int, id int64) {
			if ids++; i < len(added) {
				added[i].Key.ID = dispatcherd.JobID(id)
			}
		})
		if err == nil && ids != len(added) {
			err = fmt.Errorf("postgres sent %d ids for %d candidates", ids, len(added))
		}
	case len(added) == 1:
		res.DBNow = added[0].Key.RunAt
		res.Candidates = res.Candidates[:first]
		return nil
	default:
		err = fmt.Errorf("postgres sent %d clocks, must be 1", len(added))
	}
	if err != nil {
		res.Candidates = res.Candidates[:first]
	}
	return err
}

func (l *link) encodeLanes(req contract.FetchRequest) [][]byte {
	n := len(req.Lanes)
	b := appendHeader(l.buf[:0], oidText, n)
	for i := range req.Lanes {
		b = appendText(b, req.Lanes[i].Type)
	}
	p1 := len(b)
	b = appendHeader(b, oidInt2, n)
	for i := range req.Lanes {
		b = appendInt2(b, int16(req.Lanes[i].Priority))
	}
	p2 := len(b)
	b = appendHeader(b, oidTimestamptz, n)
	for i := range req.Lanes {
		b = appendInt8(b, req.Lanes[i].After.RunAt-postgresEpoch)
	}
	p3 := len(b)
	b = appendHeader(b, oidInt8, n)
	for i := range req.Lanes {
		b = appendInt8(b, int64(req.Lanes[i].After.ID))
	}
	p4 := len(b)
	b = appendHeader(b, oidInt4, n)
	for i := range req.Lanes {
		b = appendInt4(b, int32(req.Lanes[i].Limit))
	}
	l.buf = b
	return [][]byte{b[:p1], b[p1:p2], b[p2:p3], b[p3:p4], b[p4:]}
}

// encodeBounds makes the keys before which a look ends.
func encodeBounds(req contract.FetchRequest) [][]byte {
	n := len(req.Lanes)
	dues, ids := appendHeader(nil, oidTimestamptz, n), appendHeader(nil, oidInt8, n)
	for i := range req.Lanes {
		dues = appendInt8(dues, req.Lanes[i].Before.RunAt-postgresEpoch)
		ids = appendInt8(ids, int64(req.Lanes[i].Before.ID))
	}
	return [][]byte{dues, ids}
}

// encodeShares makes the bounds of shares, both included, which lanes are
// foreign, and the sizes of blocks.
func encodeShares(req contract.FetchRequest) [][]byte {
	n := len(req.Lanes)
	low, high, block := appendHeader(nil, oidInt4, n), appendHeader(nil, oidInt4, n), appendHeader(nil, oidInt4, n)
	apart := appendHeader(nil, oidBool, n)
	for i := range req.Lanes {
		s := req.Lanes[i].Share
		if s.All() {
			s.To = contract.ShareNumbers
		}
		low, high = appendInt4(low, int32(s.From)), appendInt4(high, int32(s.To)-1)
		apart, block = appendBool(apart, req.Lanes[i].NonLocal), appendInt4(block, int32(s.Block))
	}
	return [][]byte{low, high, apart, block}
}
