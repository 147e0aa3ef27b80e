package claim

import (
	"context"
	enc "encoding/binary"
	"fmt"
	"math"
	"slices"
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
// time as other fetches. If Postgres cannot read a lane, for example because a page of the table is damaged, Fetch
// reads each lane in a statement of its own, and reports the unreadable one. It then returns no row of that lane for
// [contract.AsideTime].
func (s *Store) Fetch(ctx context.Context, req contract.FetchRequest) contract.FetchResult {
	lanes := make([]laneRead, 0, len(req.Lanes))
	for i, q := range req.Lanes {
		if !req.Backfill {
			q.Before = endOfLanes
		}
		if s.refusals.reason(refusalOf(laneOf(&q))) == "" {
			lanes = append(lanes, laneRead{q, i})
		}
	}
	res, err := s.readTogether(ctx, &req, lanes)
	if AboutRow(err) {
		res, err = s.readApart(ctx, &req, lanes)
	}
	if err != nil {
		return contract.FetchResult{Verdict: contract.Refused}
	}
	return res
}

// endOfLanes is after all rows: a constraint keeps run_at below the year 2200.
var endOfLanes = contract.Key{RunAt: 1 << 53, ID: math.MaxInt64}

// laneRead is a lane to be read.
type laneRead struct {
	contract.LaneQuery

	place int // in FetchRequest.Lanes
}

func laneOf(q *contract.LaneQuery) contract.Lane {
	return contract.Lane{Type: q.Type, Priority: q.Priority, Class: q.Class}
}

func refusalOf(l contract.Lane) refusal { return refusal{op: OpFetch, lane: l} }

// readTogether reads lanes, and lists the lanes of types, in one statement.
func (s *Store) readTogether(ctx context.Context, req *contract.FetchRequest, lanes []laneRead) (res contract.FetchResult, err error) {
	connection, op := s.fetch, OpFetch
	if req.Backfill {
		connection, op = s.backfill, OpBackfill
	}
	err = connection.do(ctx, op, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var err error
		res, err = readLanes(ctx, conn, lanes, req.Classes, req.SkipLocked, s.me.Load())
		return len(res.Candidates), err
	})
	for i := range res.Candidates {
		res.Candidates[i].Lane = lanes[res.Candidates[i].Lane].place
	}
	return res, err
}

// readApart reads each lane in a statement of its own, and leaves out those that Postgres cannot read. If it cannot
// list the lanes of a type, all of them are named, and their reads show which one is unreadable.
func (s *Store) readApart(ctx context.Context, req *contract.FetchRequest, lanes []laneRead) (contract.FetchResult, error) {
	one := contract.FetchRequest{Backfill: req.Backfill, SkipLocked: req.SkipLocked}
	all, err := s.readTogether(ctx, &one, nil) // reads the clock
	for i := 0; i < len(lanes) && err == nil; i++ {
		var res contract.FetchResult
		res, err = s.readTogether(ctx, &one, lanes[i:i+1])
		all.Candidates = append(all.Candidates, res.Candidates...)
		if lane := laneOf(&lanes[i].LaneQuery); AboutRow(err) {
			if s.refusals.add(refusalOf(lane), reasonOf(err)) {
				s.config.Observer.Unreadable(lane, err)
			}
			err = nil
		}
	}
	for i := 0; i < len(req.Classes) && err == nil; i++ {
		var res contract.FetchResult
		one.Classes = req.Classes[i : i+1]
		res, err = s.readTogether(ctx, &one, nil)
		if AboutRow(err) {
			res, err = contract.FetchResult{Named: everyLane()}, nil
		}
		for _, lane := range res.Named {
			lane.Type = i
			all.Named = append(all.Named, lane)
		}
	}
	return all, err
}

// everyLane names all lanes of a type with an expected duration.
func everyLane() (all []contract.NamedLane) {
	for p := range dispatcherd.MaxPriority + 1 {
		for c := range dispatcherd.DurationClass(namedClasses) {
			all = append(all, contract.NamedLane{Priority: p, Class: c + 1})
		}
	}
	return all
}

// WhyUnread returns why Postgres could not read a lane; "" = it could, or has not tried for [contract.AsideTime].
func (s *Store) WhyUnread(l contract.Lane) string { return s.refusals.reason(refusalOf(l)) }

func readLanes(
	ctx context.Context,
	conn *pgx.Conn,
	lanes []laneRead,
	classes []string,
	skipLocked bool,
	me int32,
) (contract.FetchResult, error) {
	most := 0
	for i := range lanes {
		most += lanes[i].Limit
	}
	res := contract.FetchResult{Candidates: make([]contract.Candidate, 0, min(most, 4096))}
	statement, params := "fetch", encodeLanes(lanes, skipLocked, me)
	if len(classes) > 0 || slices.ContainsFunc(lanes, func(p laneRead) bool { return p.Class != dispatcherd.NoDuration }) {
		statement, params = "fetch-named", append(params, encodeClasses(lanes), texts(classes, func(t *string) string { return *t }))
	}
	rows := execute(ctx, conn, statement, params...)
	var bad error
	for rows.NextRow() {
		if err := readLane(&res, rows.Values(), len(classes)); err != nil {
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
// database clock, and one with a negative number the lanes of one of the types whose lanes are listed.
func readLane(res *contract.FetchResult, v [][]byte, types int) error {
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
	case lane < -1:
		return addNamed(res, -lane-2, types, ids)
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
func encodeLanes(lanes []laneRead, skipLocked bool, me int32) [][]byte {
	type lane = laneRead
	return [][]byte{
		texts(lanes, func(l *lane) string { return l.Type }),
		array(oidInt2, 2, lanes, func(b []byte, l *lane) []byte { return append(b, 0, 0, 0, 2, 0, byte(l.Priority)) }),
		times(lanes, func(l *lane) int64 { return l.After.RunAt - postgresEpoch }),
		int8s(lanes, func(l *lane) int64 { return int64(l.After.ID) }),
		int4s(lanes, func(l *lane) int32 { return int32(l.Limit) }),
		int4s(lanes, func(l *lane) int32 { return int32(l.Share.From) }),
		int4s(lanes, func(l *lane) int32 { return int32(l.Share.To) - 1 }),
		array(oidBool, 1, lanes, func(b []byte, l *lane) []byte {
			if l.NonLocal {
				return append(b, 0, 0, 0, 1, 1)
			}
			return append(b, 0, 0, 0, 1, 0)
		}),
		int4s(lanes, func(l *lane) int32 {
			if l.Share.All() {
				return allRows
			}
			return int32(l.Share.Block)
		}),
		times(lanes, func(l *lane) int64 { return l.Before.RunAt - postgresEpoch }),
		int8s(lanes, func(l *lane) int64 { return int64(l.Before.ID) }),
		boolean(skipLocked), int4(me),
	}
}

// encodeClasses returns the classes of the lanes for fetchNamedSQL.
func encodeClasses(lanes []laneRead) []byte {
	return array(oidInt2, 2, lanes, func(b []byte, l *laneRead) []byte {
		return enc.BigEndian.AppendUint16(append(b, 0, 0, 0, 2), uint16(l.Class)-1)
	})
}

// namedClasses is the number of classes of expected durations.
const namedClasses = dispatcherd.DurationClasses - 1

// addNamed adds the lanes of a type of the request to the result, as fetchNamedSQL lists them.
func addNamed(res *contract.FetchResult, typ, types int, lanes []dispatcherd.JobID) error {
	if typ >= types {
		return fmt.Errorf("postgres listed the lanes of type %d, and %d were asked for", typ+1, types)
	}
	for _, n := range lanes {
		if n < 0 || n >= namedClasses*(dispatcherd.JobID(dispatcherd.MaxPriority)+1) {
			return fmt.Errorf("postgres listed lane %d, must be 8 × priority + class", n)
		}
		res.Named = append(res.Named, contract.NamedLane{
			Type: typ, Priority: dispatcherd.Priority(n / namedClasses), Class: dispatcherd.DurationClass(n%namedClasses + 1),
		})
	}
	return nil
}
