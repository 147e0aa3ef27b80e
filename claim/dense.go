package claim

import (
	"github.com/dispatcherd/dispatcherd"
)

// Ids that lie close together are found by reading one stretch of the index
// instead of descending once for each: that halves the price of finding them.
// Jobs that wait in line are claimed and ended in stretches, unless priorities
// or many dispatchers scatter them. Rows of the stretch that are not meant are
// read over, so no more than every other one may be.
const (
	minDense = 16 // below, descents cost no more
	maxGaps  = 2  // ids of the stretch for each one that is meant
)

// isDense reports whether n ids from low to high are worth reading as a stretch.
func isDense(n int, low, high int64) bool {
	return n >= minDense && low > 0 && high >= low && high-low < int64(maxGaps*n)
}

// denseSQL is aloneSQL for a stretch: from $7 to $8 the rows whose bit is set in
// $9, counted from $7.
const denseSQL = whoAmI + takeRow + `
WHERE id BETWEEN $7::bigint AND $8::bigint AND get_bit($9::bytea, id - $7) = 1
	AND status = 'pending' AND (run_at <= now()) IS TRUE AND EXISTS (SELECT FROM me)` + wonColumns

// stretch returns what denseSQL wants beside the parameters of the others, or
// nil if the ids are too scattered.
func stretch(ids []dispatcherd.JobID) [][]byte {
	if len(ids) == 0 {
		return nil
	}
	low, high := int64(ids[0]), int64(ids[0])
	for _, id := range ids {
		low, high = min(low, int64(id)), max(high, int64(id))
	}
	if !isDense(len(ids), low, high) {
		return nil
	}
	bits := make([]byte, (high-low)/8+1)
	for _, id := range ids {
		n := int64(id) - low
		bits[n/8] |= 1 << (n % 8)
	}
	return [][]byte{int8b(low), int8b(high), bits}
}

// denseDoneSQL is doneSQL for a stretch: from $1 to $2 the rows whose attempt
// stands in $3, counted from $1; what is no attempt there is not meant. The
// results stand one behind the other in $5, that of the nth row from byte $6[n]
// to $6[n+1]; where nothing is, there is no result. How many rows were ended is
// in the command tag: to hand their ids over costs as much as to find them.
const denseDoneSQL = `
WITH gone AS (
	DELETE FROM dispatcherd.jobs_live j
	WHERE j.id BETWEEN $1::bigint AND $2::bigint AND j.attempt = ($3::int[])[j.id - $1 + 1]
		AND j.dispatcher = $4::int AND j.status = 'running'
	RETURNING j.id, j.run_at, j.created_at, j.attempt, j.timeout_ms, j.priority, j.max_attempts, j.failures, j.crashes,
		j.type, j.payload, j.started_at, j.errors
)
INSERT INTO dispatcherd.jobs_done (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority,
	max_attempts, failures, crashes, type, payload, started_at, finished_at, result, errors)
SELECT id, run_at, created_at, attempt, 'done', $4, timeout_ms, priority,
	max_attempts, failures, crashes, type, payload, started_at, now(),
	CASE WHEN ($6::int[])[id - $1 + 2] > ($6::int[])[id - $1 + 1] THEN convert_from(
		substring($5::bytea, ($6::int[])[id - $1 + 1] + 1, ($6::int[])[id - $1 + 2] - ($6::int[])[id - $1 + 1]), 'UTF8')::json END,
	errors
FROM gone`

const (
	noAttempt       = -1
	maxDenseResults = 4 << 20 // bytes of all results; the others go through an array
)

// encodeDenseDone makes the parameters of denseDoneSQL, or nothing if the items
// do not suit it: they must ascend, lie close together and have results that
// are not too large.
func (l *link) encodeDenseDone(items []dispatcherd.Finish, me int32) [][]byte {
	n := len(items)
	low, high := int64(items[0].ID), int64(items[n-1].ID)
	if !isDense(n, low, high) {
		return nil
	}
	bytes := 0
	for i := range items {
		r := items[i].Result
		bytes += len(r)
		if i > 0 && items[i].ID <= items[i-1].ID || r != nil && len(r) == 0 || bytes > maxDenseResults {
			return nil
		}
	}
	b := appendAttempts(l.buf[:0], items)
	p := len(b)
	for i := range items {
		b = append(b, items[i].Result...)
	}
	q := len(b)
	b = appendEnds(b, items, bytes)
	l.buf = b
	return [][]byte{int8b(low), int8b(high), b[:p], int4(me), b[p:q], b[q:]}
}

// appendAttempts appends the attempt of every id of the stretch.
func appendAttempts(b []byte, items []dispatcherd.Finish) []byte {
	next := items[0].ID
	b = appendHeader(b, oidInt4, int(items[len(items)-1].ID-next)+1)
	for i := range items {
		for ; next < items[i].ID; next++ {
			b = appendInt4(b, noAttempt)
		}
		b = appendInt4(b, int32(items[i].Attempt))
		next++
	}
	return b
}

// appendEnds appends where the result of every id of the stretch begins, and
// where the last one ends.
func appendEnds(b []byte, items []dispatcherd.Finish, bytes int) []byte {
	if bytes == 0 {
		return appendHeader(b, oidInt4, 0)
	}
	next, at := items[0].ID, int32(0)
	b = appendHeader(b, oidInt4, int(items[len(items)-1].ID-next)+2)
	for i := range items {
		for ; next < items[i].ID; next++ {
			b = appendInt4(b, at)
		}
		b = appendInt4(b, at)
		at += int32(len(items[i].Result))
		next++
	}
	return appendInt4(b, at)
}
