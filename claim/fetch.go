package claim

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// backfillTimeout bounds a backfill scan. The scan reads every dead index entry that
// a held snapshot keeps, about a hundred million in two minutes.
const backfillTimeout = 2 * time.Minute

// Fetch reads the first rows of the lanes. It changes nothing, so its verdict is
// never Unknown. A backfill scan has a connection of its own and runs at the same
// time as other fetches.
func (s *Store) Fetch(ctx context.Context, req contract.FetchRequest) contract.FetchResult {
	connection, op := s.fetch, OpFetch
	if req.Backfill {
		connection, op = s.backfill, OpBackfill
	}
	var res contract.FetchResult
	err := connection.do(ctx, op, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var err error
		res, err = readLanes(ctx, conn, req)
		return len(res.Candidates), err
	})
	if err != nil {
		return contract.FetchResult{Verdict: contract.Refused}
	}
	return res
}

func readLanes(ctx context.Context, conn *pgx.Conn, req contract.FetchRequest) (contract.FetchResult, error) {
	most := 0
	for _, lane := range req.Lanes {
		most += lane.Limit
	}
	res := contract.FetchResult{Candidates: make([]contract.Candidate, 0, min(most, 4096))}
	rows := execute(ctx, conn, "fetch", encodeLanes(&req)...)
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

// readLane reads one row of a fetch. The row contains the number of a lane, counted
// from 1, and the run_at and ids of its candidates. A row with number 0 contains the
// database clock.
func readLane(res *contract.FetchResult, v [][]byte) error {
	if len(v) != 3 || len(v[0]) != 4 {
		return fmt.Errorf("postgres sent a lane of %d columns, must be 3", len(v))
	}
	lane := int(readInt4(v[0])) - 1
	due, err := readInt8s[int64](v[1])
	if err != nil {
		return err
	}
	ids, err := readInt8s[dispatcherd.JobID](v[2])
	switch {
	case err != nil:
		return err
	case lane < 0 && len(due) == 1:
		res.DBNow = due[0] + postgresEpoch
	case lane < 0:
		return fmt.Errorf("postgres sent %d clocks, must be 1", len(due))
	case len(ids) != len(due):
		return fmt.Errorf("postgres sent %d ids for %d candidates", len(ids), len(due))
	default:
		for i, id := range ids {
			res.Candidates = append(res.Candidates, contract.Candidate{Lane: lane, Key: contract.Key{RunAt: due[i] + postgresEpoch, ID: id}})
		}
	}
	return nil
}

// allRows is the block size of a lane without a share.
const allRows = -1

// encodeLanes returns the parameters of fetchSQL.
func encodeLanes(req *contract.FetchRequest) [][]byte {
	type lane = contract.LaneQuery
	before := func(l *lane) contract.Key {
		if !req.Backfill {
			return contract.Key{RunAt: math.MaxInt64, ID: math.MaxInt64} // infinity
		}
		return contract.Key{RunAt: l.Before.RunAt - postgresEpoch, ID: l.Before.ID}
	}
	return [][]byte{
		texts(req.Lanes, func(l *lane) string { return l.Type }),
		array(oidInt2, 2, req.Lanes, func(b []byte, l *lane) []byte { return append(b, 0, 0, 0, 2, 0, byte(l.Priority)) }),
		times(req.Lanes, func(l *lane) int64 { return l.After.RunAt - postgresEpoch }),
		int8s(req.Lanes, func(l *lane) int64 { return int64(l.After.ID) }),
		int4s(req.Lanes, func(l *lane) int32 { return int32(l.Limit) }),
		int4s(req.Lanes, func(l *lane) int32 { return int32(l.Share.From) }),
		int4s(req.Lanes, func(l *lane) int32 { return int32(l.Share.To) - 1 }),
		array(oidBool, 1, req.Lanes, func(b []byte, l *lane) []byte {
			if l.NonLocal {
				return append(b, 0, 0, 0, 1, 1)
			}
			return append(b, 0, 0, 0, 1, 0)
		}),
		int4s(req.Lanes, func(l *lane) int32 {
			if l.Share.All() {
				return allRows
			}
			return int32(l.Share.Block)
		}),
		times(req.Lanes, func(l *lane) int64 { return before(l).RunAt }),
		int8s(req.Lanes, func(l *lane) int64 { return int64(before(l).ID) }),
		boolean(req.SkipLocked),
	}
}
