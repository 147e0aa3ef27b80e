package claim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// backfillTimeout bounds a backfill scan, which reads every dead index entry that a
// held snapshot keeps: in two minutes about a hundred million.
const backfillTimeout = 2 * time.Minute

// Fetch reads the first rows of the lanes. It changes nothing, so its verdict
// is never Unknown. A backfill scan runs beside other fetches.
func (s *Store) Fetch(ctx context.Context, req contract.FetchRequest) contract.FetchResult {
	connection, op := s.fetch, OpFetch
	if req.Backfill {
		connection, op = s.backfill, OpBackfill
	}
	var res contract.FetchResult
	err := connection.do(ctx, op, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var err error
		res, err = connection.readLanes(ctx, conn, req)
		return len(res.Candidates), err
	})
	if err != nil {
		return contract.FetchResult{Verdict: contract.Refused}
	}
	return res
}

func (l *connection) readLanes(ctx context.Context, conn *pgx.Conn, req contract.FetchRequest) (contract.FetchResult, error) {
	most := 0
	for _, lane := range req.Lanes {
		most += lane.Limit
	}
	res := contract.FetchResult{Candidates: make([]contract.Candidate, 0, min(most, 4096))}
	params := slices.Concat(l.encodeLanes(req), encodeShares(req), encodeBounds(req))
	rows := execute(ctx, conn, "fetch", params...)
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

func (l *connection) encodeLanes(req contract.FetchRequest) [][]byte {
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

// encodeBounds returns the keys before which a backfill scan ends. Other fetches
// have no bound.
func encodeBounds(req contract.FetchRequest) [][]byte {
	n := len(req.Lanes)
	dues, ids := appendHeader(nil, oidTimestamptz, n), appendHeader(nil, oidInt8, n)
	for i := range req.Lanes {
		due, id := int64(math.MaxInt64), int64(math.MaxInt64) // infinity
		if req.Backfill {
			due, id = req.Lanes[i].Before.RunAt-postgresEpoch, int64(req.Lanes[i].Before.ID)
		}
		dues, ids = appendInt8(dues, due), appendInt8(ids, id)
	}
	return [][]byte{dues, ids}
}

// allRows is the block size of a lane without a share.
const allRows = -1

// encodeShares returns the lowest and highest numbers of shares, which lanes are
// non-local, and the block sizes.
func encodeShares(req contract.FetchRequest) [][]byte {
	n := len(req.Lanes)
	low, high, block := appendHeader(nil, oidInt4, n), appendHeader(nil, oidInt4, n), appendHeader(nil, oidInt4, n)
	outside := appendHeader(nil, oidBool, n)
	for i := range req.Lanes {
		s, size := req.Lanes[i].Share, int32(req.Lanes[i].Share.Block)
		if s.All() {
			size = allRows
		}
		low, high = appendInt4(low, int32(s.From)), appendInt4(high, int32(s.To)-1)
		outside, block = appendBool(outside, req.Lanes[i].NonLocal), appendInt4(block, size)
	}
	return [][]byte{low, high, outside, block}
}
