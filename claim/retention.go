package claim

import (
	"context"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/jackc/pgx/v5"
)

// Retention says how long rows of ended jobs are kept.
type Retention struct {
	Done   time.Duration // also of cancelled jobs
	Failed time.Duration
}

// DaysAhead is for how many coming days partitions are created before they are needed.
const DaysAhead = 3

// Kept is what a call of KeepPartitions did.
type Kept struct {
	Made, Dropped int
	// Blocked are the partitions that it could not create, empty or drop, because other sessions use them, or because rows of their day
	// are in the rest already.
	Blocked int
}

// KeepPartitions creates the partitions of the coming days and, with drop, drops the
// partitions whose retention has ended. Call it before any job ends, because a row that ends on a
// day without a partition goes to the default partition, and no partition can then be created for
// that day. Call it with drop every hour. Several
// daemons may call it at the same time. The next call tries again what is blocked.
func (s *Store) KeepPartitions(ctx context.Context, keep Retention, drop bool) (k Kept, err error) {
	for _, r := range []struct {
		status dispatcherd.Status
		keep   time.Duration
	}{{dispatcherd.Done, keep.Done}, {dispatcherd.Failed, keep.Failed}, {dispatcherd.Cancelled, keep.Done}} {
		if err := s.keepPartitions(ctx, string(r.status), DaysAhead, r.keep, drop, &k); err != nil {
			return k, err
		}
	}
	return k, nil
}

// partitionsSQL returns the present, and the first days and the ends of the partitions of status $1, in UTC. A bound is the second text
// in FOR VALUES FROM ('…') TO ('…').
const partitionsSQL = `
SELECT now() AT TIME ZONE 'UTC', coalesce(array_agg(p.day ORDER BY p.day), '{}'), coalesce(array_agg(p.until ORDER BY p.day), '{}') FROM (
	SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
		split_part(pg_get_expr(c.relpartbound, c.oid), '''', 4)::timestamptz AT TIME ZONE 'UTC' AS until
	FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
	WHERE i.inhparent = ('dispatcherd.jobs_' || $1::text)::regclass AND c.relname ~ '_[0-9]{8}$') p`

const day = 24 * time.Hour

// mostSpans is about how many partitions a status has. If the retention has more days, a partition contains several of them: a statement
// that finds a job by its id locks all partitions with their indexes, and Postgres has a table of a few thousand locks for all sessions.
const mostSpans = 32

// spanOf returns how long a partition is.
func spanOf(keep time.Duration) time.Duration {
	days := int((keep-1)/(mostSpans*day)) + 1
	return time.Duration(days) * day
}

// newSpan returns the end of the partition that is to be created from a day on, unless one of the others contains the day. Partitions
// begin and end at multiples of span, except where the retention was changed: then they fill the gaps between others.
func newSpan(at time.Time, span time.Duration, days, untils []time.Time) (until time.Time, needed bool) {
	until = at.Truncate(span).Add(span)
	for i := range days {
		switch {
		case days[i].After(at):
			if days[i].Before(until) {
				until = days[i]
			}
		case untils[i].After(at):
			return until, false
		}
	}
	return until, true
}

// keepPartitions does KeepPartitions for one status. Each partition has a transaction of its own, so what it locks is locked for
// milliseconds.
func (s *Store) keepPartitions(ctx context.Context, status string, ahead int, keep time.Duration, drop bool, k *Kept) error {
	if drop {
		if err := s.emptyRest(ctx, status, keep, k); err != nil {
			return err
		}
	}
	var now time.Time
	var days, untils []time.Time
	err := s.sweep.of(OpSweep).Scan(ctx, partitionsSQL, []any{status}, &now, &days, &untils)
	for i := 0; i <= ahead && err == nil; i++ {
		at, made := now.Truncate(day).Add(time.Duration(i)*day), k.Made
		until, needed := newSpan(at, spanOf(keep), days, untils)
		if !needed {
			continue
		}
		err = s.change(ctx, k, &k.Made, `SELECT dispatcherd.create_partition($1::text::dispatcherd.status, $2, $3)`, status, at, until)
		if k.Made > made { // otherwise the next day may be possible
			days, untils = append(days, at), append(untils, until)
		}
	}
	for i := 0; i < len(days) && err == nil && drop && untils[i].Before(now.Add(-keep)); i++ {
		err = s.change(ctx, k, &k.Dropped, `SELECT dispatcherd.drop_partition($1::text::dispatcherd.status, $2)`, status, days[i])
	}
	return err
}

// SQLSTATEs of partitions.
const (
	restHasRows      = "23514" // of the day of the partition
	duplicateTable   = "42P07"
	overlaps         = "42P17" // another partition contains a part of the days
	duplicateType    = "42710"
	duplicateCatalog = "23505"
)

// change sends a statement that changes partitions, and adds the number of its rows to n.
func (s *Store) change(ctx context.Context, k *Kept, n *int, sql string, args ...any) error {
	return s.briefly(ctx, k, sql, args, func(rows pgx.Rows) error {
		rows.Close()
		*n += int(rows.CommandTag().RowsAffected())
		return nil
	})
}

// briefly sends a statement about partitions that waits for locks for 250 ms only. It counts in k what is blocked. If another dispatcher
// has created the partition, that is no error.
func (s *Store) briefly(ctx context.Context, k *Kept, sql string, args []any, read func(pgx.Rows) error) error {
	return s.sweep.do(ctx, OpSweep, func(c Session) (int, error) {
		var batch pgx.Batch // one transaction
		batch.Queue(`SET LOCAL lock_timeout = '250ms'`)
		batch.Queue(sql, args...).Query(read)
		err := c.SendBatch(c, &batch).Close()
		switch AnswerCode(err) {
		case lockNotGranted, restHasRows:
			k.Blocked++
			return 0, nil
		case duplicateTable, overlaps, duplicateType, duplicateCatalog:
			return 0, nil
		}
		return 1, err
	})
}

// restMost bounds the rows of one read of the rest, and restPortion those that one statement deletes.
const (
	restMost    = 10_000
	restPortion = 1000
)

// emptyRest deletes the rows of the rest that ended more than keep ago. The rest is the partition for which there is no day.
func (s *Store) emptyRest(ctx context.Context, status string, keep time.Duration, k *Kept) error {
	rest := `dispatcherd.jobs_` + status + `_rest`
	const old = ` WHERE coalesce(finished_at, '-infinity') < now() - $1::interval `
	for more := true; more; {
		var ids []dispatcherd.JobID
		err := s.briefly(ctx, k, `SELECT id FROM `+rest+old+`ORDER BY coalesce(finished_at, '-infinity') LIMIT $2`, []any{keep, restMost},
			ReadRows(&ids, pgx.RowTo[dispatcherd.JobID]))
		deleted, blocked := 0, k.Blocked
		for some := range slices.Chunk(ids, restPortion) {
			if err != nil {
				break
			}
			err = apart(s, OpSweep, some, time.Now().Add(RepeatTime), func(id dispatcherd.JobID) dispatcherd.JobID { return id },
				func(part []dispatcherd.JobID) error {
					return s.change(ctx, k, &deleted, `DELETE FROM `+rest+` WHERE ctid = ANY (ARRAY (
						SELECT ctid FROM `+rest+old+`AND id = ANY ($2::bigint[]) FOR UPDATE SKIP LOCKED))`, keep, bigints(part))
				})
		}
		if err != nil {
			return err
		}
		more = len(ids) == restMost && deleted > 0 && k.Blocked == blocked
	}
	return nil
}
