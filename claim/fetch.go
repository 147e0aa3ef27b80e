package claim

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

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
	err = connection.do(ctx, op, func(c Session) (int, error) {
		var err error
		res, err = readLanes(c, lanes, req.Classes, req.SkipLocked, s.me.Load())
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
	c Session,
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
		statement = "fetch-named"
		params = append(params, column(lanes, func(l *laneRead) int16 { return int16(l.Class) - 1 }), classes)
	}
	var (
		lane int         // counted from 1; 0 = the row contains the database clock, -n = the lanes of the nth of the types whose lanes are listed
		due  []time.Time // of the candidates of the lane
		ids  []int64
	)
	rows, _ := c.Query(c, statement, params...) // the next line returns its error
	_, err := pgx.ForEachRow(rows, []any{&lane, &due, &ids}, func() error {
		switch {
		case lane == 0:
			res.DBNow = due[0].UnixMicro()
		case lane > 0:
			for i, id := range ids {
				key := contract.Key{RunAt: due[i].UnixMicro(), ID: dispatcherd.JobID(id)}
				res.Candidates = append(res.Candidates, contract.Candidate{Lane: lane - 1, Key: key})
			}
		default:
			for _, n := range ids { // as fetchNamedSQL numbers them
				res.Named = append(res.Named, contract.NamedLane{
					Type: -lane - 1, Priority: dispatcherd.Priority(n / namedClasses), Class: dispatcherd.DurationClass(n%namedClasses + 1),
				})
			}
		}
		return nil
	})
	return res, err
}

// allRows is the block size of a lane without a share.
const allRows = -1

// encodeLanes returns the parameters of fetchSQL.
func encodeLanes(lanes []laneRead, skipLocked bool, me int32) []any {
	type lane = laneRead
	return []any{
		column(lanes, func(l *lane) string { return l.Type }),
		column(lanes, func(l *lane) int16 { return int16(l.Priority) }),
		column(lanes, func(l *lane) time.Time { return time.UnixMicro(l.After.RunAt) }),
		column(lanes, func(l *lane) int64 { return int64(l.After.ID) }),
		column(lanes, func(l *lane) int32 { return int32(l.Limit) }),
		column(lanes, func(l *lane) int32 { return int32(l.Share.From) }),
		column(lanes, func(l *lane) int32 { return int32(l.Share.To) - 1 }),
		column(lanes, func(l *lane) bool { return l.NonLocal }),
		column(lanes, func(l *lane) int32 {
			if l.Share.All() {
				return allRows
			}
			return int32(l.Share.Block)
		}),
		column(lanes, func(l *lane) time.Time { return time.UnixMicro(l.Before.RunAt) }),
		column(lanes, func(l *lane) int64 { return int64(l.Before.ID) }),
		skipLocked, me,
	}
}

// namedClasses is the number of classes of expected durations.
const namedClasses = dispatcherd.DurationClasses - 1
