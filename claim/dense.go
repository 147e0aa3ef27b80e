package claim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// denseSQL is aloneSQL for one stretch, from $8 to $9: the rows whose bit is set
// in $7, counted from $8. stretchesSQL is the same for several, given as arrays:
// the bit is at the place that $10 leads to. See stretches.
const (
	denseSQL = whoAmI + takeRow + `
WHERE id BETWEEN $8::bigint AND $9::bigint AND get_bit($7::bytea, id - $8) = 1` + ifPending
	stretchesSQL = whoAmI + takeRow + `
FROM unnest($8::bigint[], $9::bigint[], $10::bigint[]) AS s (low, high, base)
WHERE id BETWEEN s.low AND s.high AND s.low > 0 AND s.high > 0 AND get_bit($7::bytea, id - s.base) = 1` + ifPending
	ifPending = `
	AND status = 'pending' AND (run_at <= now()) IS TRUE AND EXISTS (SELECT FROM me)` + wonColumns
)

// encodeDense returns what denseSQL or stretchesSQL wants beside the parameters
// of the others, or nil if the ids are too scattered.
func encodeDense(ids []dispatcherd.JobID) [][]byte {
	var s stretches
	if !s.cut(len(ids), func(i int) dispatcherd.JobID { return ids[i] }) {
		return nil
	}
	bits := make([]byte, s.places/8+1)
	s.each(len(ids), func(i int) dispatcherd.JobID { return ids[i] }, func(_ int, place int64) {
		bits[place/8] |= 1 << (place % 8)
	})
	return append([][]byte{bits}, s.bounds()...)
}

// denseDoneSQL is doneSQL for one stretch, from $5 to $6: the rows whose attempt
// stands in $1, counted from $5; what is no attempt there is not meant. The
// results stand one behind the other in $3, that of the nth place from byte $4[n]
// to $4[n+1]; where nothing is, there is no result. How many rows were ended is
// in the command tag: to hand their ids over costs as much as to find them.
// stretchesDoneSQL is the same for several, whose places are counted by $7.
const (
	denseDoneSQL = `
WITH gone AS (
	DELETE FROM dispatcherd.jobs_live j
	WHERE j.id BETWEEN $5::bigint AND $6::bigint AND j.attempt = ($1::int[])[j.id - $5 + 1]` + endedColumns + `j.id - $5` + endedPlaces
	stretchesDoneSQL = `
WITH gone AS (
	DELETE FROM dispatcherd.jobs_live j USING unnest($5::bigint[], $6::bigint[], $7::bigint[]) AS s (low, high, base)
	WHERE j.id BETWEEN s.low AND s.high AND s.low > 0 AND s.high > 0 AND j.attempt = ($1::int[])[j.id - s.base + 1]` + endedColumns + `j.id - s.base` + endedPlaces
	endedColumns = `
		AND j.dispatcher = $2::int AND j.status = 'running'
	RETURNING j.id, j.run_at, j.created_at, j.attempt, j.timeout_ms, j.priority, j.max_attempts, j.failures, j.crashes,
		j.type, j.payload, j.started_at, j.errors, `
	endedPlaces = ` + 1 AS n
)
INSERT INTO dispatcherd.jobs_done (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority,
	max_attempts, failures, crashes, type, payload, started_at, finished_at, result, errors)
SELECT id, run_at, created_at, attempt, 'done', $2, timeout_ms, priority,
	max_attempts, failures, crashes, type, payload, started_at, now(),
	CASE WHEN ($4::int[])[n + 1] > ($4::int[])[n] THEN convert_from(
		substring($3::bytea, ($4::int[])[n] + 1, ($4::int[])[n + 1] - ($4::int[])[n]), 'UTF8')::json END,
	errors
FROM gone`
)

const (
	noAttempt       = -1
	maxDenseResults = 4 << 20 // bytes of all results; the others go through an array
)

// encodeDenseDone makes the parameters of denseDoneSQL or stretchesDoneSQL, or
// nothing if the items do not suit them: they must ascend, lie close together and have results that
// are not too large.
func (l *link) encodeDenseDone(items []contract.Finish, me int32) [][]byte {
	var s stretches
	if !s.cut(len(items), func(i int) dispatcherd.JobID { return items[i].ID }) {
		return nil
	}
	bytes := 0
	for i := range items {
		r := items[i].Result
		bytes += len(r)
		if r != nil && len(r) == 0 || bytes > maxDenseResults {
			return nil
		}
	}
	b := s.appendAttempts(l.buf[:0], items)
	p := len(b)
	for i := range items {
		b = append(b, items[i].Result...)
	}
	q := len(b)
	b = s.appendEnds(b, items, bytes)
	l.buf = b
	return append([][]byte{b[:p], int4(me), b[p:q], b[q:]}, s.bounds()...)
}

// nameOf tells which of two statements suits parameters that end with the bounds
// of stretches.
func nameOf(params [][]byte, fixed int, one, several string) string {
	if len(params) == fixed+boundsOfOne {
		return one
	}
	return several
}

// appendAttempts appends the attempt of every place.
func (s *stretches) appendAttempts(b []byte, items []contract.Finish) []byte {
	b = appendHeader(b, oidInt4, int(s.places))
	next := int64(0)
	s.each(len(items), func(i int) dispatcherd.JobID { return items[i].ID }, func(i int, place int64) {
		for ; next < place; next++ {
			b = appendInt4(b, noAttempt)
		}
		b = appendInt4(b, int32(items[i].Attempt))
		next++
	})
	return b
}

// appendEnds appends where the result of every place begins, and where the last
// one ends.
func (s *stretches) appendEnds(b []byte, items []contract.Finish, bytes int) []byte {
	if bytes == 0 {
		return appendHeader(b, oidInt4, 0)
	}
	b = appendHeader(b, oidInt4, int(s.places)+1)
	next, at := int64(0), int32(0)
	s.each(len(items), func(i int) dispatcherd.JobID { return items[i].ID }, func(i int, place int64) {
		for ; next <= place; next++ {
			b = appendInt4(b, at)
		}
		at += int32(len(items[i].Result))
	})
	return appendInt4(b, at)
}
