package claim

import (
	"context"
	enc "encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/aside"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// backfillTimeout bounds a backfill scan. The scan reads every dead index entry that
// a held snapshot keeps, about a hundred million in two minutes.
const backfillTimeout = 2 * time.Minute

// Fetch reads the first rows of the lanes. It changes nothing, so its verdict is
// never Unknown. A backfill scan has a connection of its own and runs at the same
// time as other fetches. A fetch leaves out the ranges of lanes that Postgres refuses to
// read, for example because a page of the table is damaged.
func (s *Store) Fetch(ctx context.Context, req contract.FetchRequest) contract.FetchResult {
	lanes := slices.Clone(req.Lanes)
	if !req.Backfill {
		for i := range lanes {
			lanes[i].Before = endOfLanes
		}
	}
	f := fetch{s: s, req: &req, lanes: lanes}
	parts, again := f.split(false)
	res, err := f.read(ctx, parts, req.Classes)
	refused := AboutRow(err)
	if refused {
		res, err = f.readInParts(ctx, again)
	}
	switch {
	case err != nil:
		return contract.FetchResult{Verdict: contract.Refused}
	case refused || len(parts) > len(lanes):
		f.join(&res)
	}
	return res
}

// join joins the rows of the parts of each lane.
func (f *fetch) join(res *contract.FetchResult) {
	all := res.Candidates
	sort.Slice(all, func(i, k int) bool { // SortFunc would add 5 kB to the program
		return all[i].Lane < all[k].Lane || all[i].Lane == all[k].Lane && all[i].Key.Less(all[k].Key)
	})
	n := make([]int, len(f.lanes))
	res.Candidates = slices.DeleteFunc(res.Candidates, func(c contract.Candidate) bool {
		n[c.Lane]++
		return n[c.Lane] > f.lanes[c.Lane].Limit
	})
}

// endOfLanes is after all rows: a constraint keeps run_at below the year 2200.
var endOfLanes = contract.Key{RunAt: 1 << 53, ID: math.MaxInt64}

// fetch is one call of [Store.Fetch].
type fetch struct {
	s     *Store
	req   *contract.FetchRequest
	lanes []contract.LaneQuery // with Before
	until time.Time            // the search for unreadable ranges ends
	sent  int                  // statements of the search
	res   contract.FetchResult // of the search
}

// lanePart is a part of a lane: the rows between two keys.
type lanePart struct {
	contract.LaneQuery

	lane int // index into fetch.lanes
}

// split returns the parts of the lanes outside the ranges that are left out. again says that
// a range is read again, because its pause has ended. With all, no range is read again.
func (f *fetch) split(all bool) (parts []lanePart, again bool) {
	a := f.s.aside
	a.mu.Lock()
	defer a.mu.Unlock()
	parts = make([]lanePart, 0, len(f.lanes))
	var some []contract.LaneQuery
	for i := range f.lanes {
		var ended bool
		some, ended = a.ranges.Split(some[:0], f.lanes[i], all, a.now())
		again = again || ended
		for _, q := range some {
			parts = append(parts, lanePart{q, i})
		}
	}
	return parts, again
}

// read reads parts of lanes, and lists the lanes of types, in one statement.
func (f *fetch) read(ctx context.Context, parts []lanePart, classes []string) (res contract.FetchResult, err error) {
	connection, op := f.s.fetch, OpFetch
	if f.req.Backfill {
		connection, op = f.s.backfill, OpBackfill
	}
	err = connection.do(ctx, op, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var err error
		res, err = readLanes(ctx, conn, parts, classes, f.req.SkipLocked, f.s.me.Load())
		return len(res.Candidates), err
	})
	for i := range res.Candidates {
		res.Candidates[i].Lane = parts[res.Candidates[i].Lane].lane
	}
	return res, err
}

// The bounds of a search for ranges that Postgres refuses to read. A search takes about a
// hundred statements per range.
const (
	rangeStatements = 1000
	rangeTime       = time.Second
)

// readInParts repeats a fetch that Postgres refused. If the fetch read some ranges again, it
// leaves them out first. Then it divides the fetch by lane, and the refused lanes by key.
func (f *fetch) readInParts(ctx context.Context, again bool) (contract.FetchResult, error) {
	parts, _ := f.split(true)
	if again {
		res, err := f.read(ctx, parts, f.req.Classes)
		if err == nil {
			f.leaveOutAgain()
		}
		if !AboutRow(err) {
			return res, err
		}
	}
	f.until = time.Now().Add(rangeTime)
	if err := f.add(ctx, nil); err != nil { // reads the clock
		return f.res, err
	}
	for len(parts) > 0 {
		r, err := isolate(parts, func(some []lanePart) error { return f.add(ctx, some) })
		if err != nil && !AboutRow(err) {
			return f.res, err
		}
		for _, g := range r.refused {
			if err := f.search(ctx, g.item, g.err); err != nil {
				return f.res, err
			}
		}
		if parts = r.rest; f.over() {
			break // a later fetch reads the rest
		}
	}
	return f.res, f.nameLanes(ctx)
}

// over reports whether the search has reached its bounds.
func (f *fetch) over() bool { return f.sent >= rangeStatements || time.Now().After(f.until) }

// add reads parts and adds their rows to the result of the search.
func (f *fetch) add(ctx context.Context, parts []lanePart) error {
	f.sent++
	res, err := f.read(ctx, parts, nil)
	if err == nil {
		f.res.DBNow = res.DBNow
		f.res.Candidates = append(f.res.Candidates, res.Candidates...)
	}
	return err
}

// search adds the readable rows of a part that Postgres refuses to read, and leaves out the
// unreadable ranges. At the bounds of the search it leaves out the rest of the part.
func (f *fetch) search(ctx context.Context, part lanePart, cause error) error {
	for part.Limit > 0 && part.After.Less(part.Before) {
		rows, err := f.readable(ctx, part)
		if err != nil {
			return err
		}
		f.res.Candidates = append(f.res.Candidates, rows...)
		if part.Limit -= len(rows); len(rows) > 0 {
			part.After = rows[len(rows)-1].Key
		}
		from := part.After
		if part.After, err = f.endOfRange(ctx, part); err != nil {
			return err
		}
		f.leaveOut(
			aside.Range{Lane: contract.Lane{Type: part.Type, Priority: part.Priority, Class: part.Class}, From: from, To: part.After},
			cause,
		)
		if f.over() || part.Limit <= 0 {
			return nil
		}
		if err := f.add(ctx, []lanePart{part}); !AboutRow(err) {
			return err
		}
	}
	return nil
}

// readable returns the rows before the first one that Postgres refuses to read.
func (f *fetch) readable(ctx context.Context, part lanePart) (rows []contract.Candidate, err error) {
	_, err = gallop(0, int64(part.Limit), func(n int64) (bool, error) {
		part.Limit = int(n)
		some, refused, err := f.try(ctx, part)
		if !refused && err == nil {
			rows = some
		}
		return refused, err
	})
	return rows, err
}

// endOfRange returns the first key after which Postgres can read a row of a part.
func (f *fetch) endOfRange(ctx context.Context, part lanePart) (contract.Key, error) {
	part.Limit = 1
	at, end := part.After, part.Before
	readable := func(k contract.Key) (bool, error) {
		part.After = k
		_, refused, err := f.try(ctx, part)
		return !refused, err
	}
	inID := func(n int64) (bool, error) { return readable(contract.Key{RunAt: at.RunAt, ID: dispatcherd.JobID(n)}) }
	same, err := inID(math.MaxInt64)
	if err == nil && !same {
		at.ID = 0
		at.RunAt, err = gallop(at.RunAt, end.RunAt, func(n int64) (bool, error) { return readable(contract.Key{RunAt: n, ID: math.MaxInt64}) })
	}
	if err == nil {
		var id int64
		id, err = gallop(int64(at.ID), math.MaxInt64, inID)
		at.ID = dispatcherd.JobID(id)
	}
	if f.over() || end.Less(at) {
		return end, err
	}
	return at, err
}

// try reads a part. After the end of the search, it counts every part as refused.
func (f *fetch) try(ctx context.Context, part lanePart) (rows []contract.Candidate, refused bool, err error) {
	if f.over() {
		return nil, true, nil
	}
	f.sent++
	res, err := f.read(ctx, []lanePart{part}, nil)
	if AboutRow(err) {
		return nil, true, nil
	}
	return res.Candidates, false, err
}

// gallop returns a number n > low for which is holds, but not for n - 1. It knows that is does not
// hold for low, and holds for high. It looks near low first.
func gallop(low, high int64, is func(int64) (bool, error)) (int64, error) {
	for step := int64(1); high-low > 1; {
		n := low + (high-low)/2
		if step > 0 && step < high-low {
			n = low + step
		}
		yes, err := is(n)
		switch {
		case err != nil:
			return high, err
		case yes:
			high, step = n, 0
		default:
			low, step = n, 2*step
		}
	}
	return high, nil
}

// leaveOut makes later fetches leave out a range, and reports it.
func (f *fetch) leaveOut(g aside.Range, cause error) {
	a := f.s.aside
	a.mu.Lock()
	a.ranges.Add(g, cause.Error(), a.now(), a.rng)
	a.mu.Unlock()
	f.s.config.Observer.Refused(OpFetch, g.To.ID)
}

// leaveOutAgain extends the pauses that have ended, and reports the ranges.
func (f *fetch) leaveOutAgain() {
	a := f.s.aside
	var all []aside.Range
	a.mu.Lock()
	for i := range f.lanes {
		all = append(
			all,
			a.ranges.Refused(contract.Lane{Type: f.lanes[i].Type, Priority: f.lanes[i].Priority, Class: f.lanes[i].Class}, a.now(), a.rng)...)
	}
	a.mu.Unlock()
	for _, g := range all {
		f.s.config.Observer.Refused(OpFetch, g.To.ID)
	}
}

func readLanes(
	ctx context.Context,
	conn *pgx.Conn,
	parts []lanePart,
	classes []string,
	skipLocked bool,
	me int32,
) (contract.FetchResult, error) {
	most := 0
	for i := range parts {
		most += parts[i].Limit
	}
	res := contract.FetchResult{Candidates: make([]contract.Candidate, 0, min(most, 4096))}
	statement, params := "fetch", encodeLanes(parts, skipLocked, me)
	if len(classes) > 0 || slices.ContainsFunc(parts, func(p lanePart) bool { return p.Class != dispatcherd.NoDuration }) {
		statement, params = "fetch-named", append(params, encodeClasses(parts), texts(classes, func(t *string) string { return *t }))
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
func encodeLanes(parts []lanePart, skipLocked bool, me int32) [][]byte {
	type lane = lanePart
	return [][]byte{
		texts(parts, func(l *lane) string { return l.Type }),
		array(oidInt2, 2, parts, func(b []byte, l *lane) []byte { return append(b, 0, 0, 0, 2, 0, byte(l.Priority)) }),
		times(parts, func(l *lane) int64 { return l.After.RunAt - postgresEpoch }),
		int8s(parts, func(l *lane) int64 { return int64(l.After.ID) }),
		int4s(parts, func(l *lane) int32 { return int32(l.Limit) }),
		int4s(parts, func(l *lane) int32 { return int32(l.Share.From) }),
		int4s(parts, func(l *lane) int32 { return int32(l.Share.To) - 1 }),
		array(oidBool, 1, parts, func(b []byte, l *lane) []byte {
			if l.NonLocal {
				return append(b, 0, 0, 0, 1, 1)
			}
			return append(b, 0, 0, 0, 1, 0)
		}),
		int4s(parts, func(l *lane) int32 {
			if l.Share.All() {
				return allRows
			}
			return int32(l.Share.Block)
		}),
		times(parts, func(l *lane) int64 { return l.Before.RunAt - postgresEpoch }),
		int8s(parts, func(l *lane) int64 { return int64(l.Before.ID) }),
		boolean(skipLocked), int4(me),
	}
}

// encodeClasses returns the classes of the lanes for fetchNamedSQL.
func encodeClasses(parts []lanePart) []byte {
	return array(oidInt2, 2, parts, func(b []byte, l *lanePart) []byte {
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

// nameLanes adds the lanes of the types of the request to the result of a search for unreadable ranges. It names all lanes of a type if
// Postgres refuses to list them or the search has reached its bounds: the reads of the lanes find out.
func (f *fetch) nameLanes(ctx context.Context) error {
	for i, typ := range f.req.Classes {
		res, err := contract.FetchResult{}, error(nil)
		unknown := f.over()
		if !unknown {
			f.sent++
			res, err = f.read(ctx, nil, []string{typ})
			unknown = AboutRow(err)
		}
		if unknown {
			for n := range namedClasses * (dispatcherd.JobID(dispatcherd.MaxPriority) + 1) {
				err = addNamed(&res, 0, 1, []dispatcherd.JobID{n})
			}
		}
		if err != nil {
			return err
		}
		for _, lane := range res.Named {
			lane.Type = i
			f.res.Named = append(f.res.Named, lane)
		}
	}
	return nil
}
