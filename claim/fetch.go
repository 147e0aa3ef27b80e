package claim

import (
	"context"

	"github.com/dispatcherd/dispatcherd"
	"github.com/jackc/pgx/v5"
)

// fetchSQL reads the heads of lanes: one short index scan each, aggregated into
// one row a lane. Row 0 is the clock. Inside a lane the order of score is the
// order of (run_at, id) under any weights, so this is the exact top k. The index
// has id + 0 as its last key, so that no statement reaches a row by id through it.
const fetchSQL = `
SELECT 0, ARRAY[now()], NULL::bigint[]
UNION ALL
SELECT lane::int, due, ids
FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[], $5::int[])
	WITH ORDINALITY AS l (type, priority, after_run_at, after_id, most, lane)
CROSS JOIN LATERAL (
	SELECT array_agg(run_at::timestamptz) AS due, array_agg(id::bigint) AS ids
	FROM (
		SELECT j.run_at, j.id FROM dispatcherd.jobs_live j
		WHERE j.type = l.type AND j.priority = l.priority AND j.status = 'pending'
			AND (j.run_at, j.id + 0) > (l.after_run_at, l.after_id)
		ORDER BY j.run_at, j.id + 0 LIMIT l.most
	) head
) heads
WHERE ids IS NOT NULL`

// Fetch reads the first rows of the lanes. It changes nothing, so its verdict
// is never Unknown.
func (s *Store) Fetch(ctx context.Context, req dispatcherd.FetchRequest) dispatcherd.FetchResult {
	var res dispatcherd.FetchResult
	err := s.fetch.do(ctx, OpFetch, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var err error
		res, err = s.fetch.readLanes(ctx, conn, req)
		return len(res.Candidates), err
	})
	if err != nil {
		return dispatcherd.FetchResult{Verdict: dispatcherd.Refused}
	}
	return res
}

func (l *link) readLanes(ctx context.Context, conn *pgx.Conn, req dispatcherd.FetchRequest) (dispatcherd.FetchResult, error) {
	most := 0
	for _, lane := range req.Lanes {
		most += lane.Limit
	}
	res := dispatcherd.FetchResult{Candidates: make([]dispatcherd.Candidate, 0, min(most, 4096))}
	rows := execute(ctx, conn, "fetch", l.encodeLanes(req)...)
	var bad error
	for rows.NextRow() {
		v := rows.Values()
		lane, first := int(readInt4(v[0]))-1, len(res.Candidates)
		err := readInt8s(v[1], func(_ int, due int64) {
			res.Candidates = append(res.Candidates, dispatcherd.Candidate{Lane: lane, Key: dispatcherd.Key{RunAt: due + postgresEpoch}})
		})
		if lane < 0 && err == nil {
			res.DBNow = res.Candidates[first].Key.RunAt
			res.Candidates = res.Candidates[:first]
			continue
		}
		if err == nil {
			err = readInt8s(v[2], func(i int, id int64) { res.Candidates[first+i].Key.ID = dispatcherd.JobID(id) })
		}
		if err != nil {
			bad = err
		}
	}
	if _, err := rows.Close(); err != nil {
		return res, err
	}
	return res, bad
}

func (l *link) encodeLanes(req dispatcherd.FetchRequest) [][]byte {
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
