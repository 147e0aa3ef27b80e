package claim

import (
	"math"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// jumpSQL is shareSQL for lanes that are read on among rows of one instant, as
// COPY and INSERT … SELECT write them. Those are in order of id, so the blocks of
// the share are reached one after the other by descents, and the rows of the
// others are not read over: they are three of four where four dispatchers share a
// type. $10 has the places where the blocks begin, of one lane after the other,
// those of a lane from $11 to $12; $13 is the id behind which what follows is read
// as shareSQL does. That lies behind the last block and before the next one of
// the share, so nothing is left out and the first rows are exact.
const jumpSQL = lanesOf + `$5::int[], $6::int[], $7::int[], $8::boolean[], $9::int[], $11::int[], $12::int[], $13::bigint[])
	WITH ORDINALITY AS l (type, priority, after_run_at, after_id, most, low, high, apart, block, first, last, beyond, lane)
CROSS JOIN LATERAL (
	SELECT array_agg(run_at) AS due, array_agg(id) AS ids
	FROM (
		SELECT run_at, id FROM unnest(($10::bigint[])[l.first : l.last]) AS b CROSS JOIN LATERAL (
			SELECT j.run_at::timestamptz, j.id::bigint FROM dispatcherd.jobs_live j
			WHERE j.type = l.type AND j.priority = l.priority AND j.status = 'pending' AND j.run_at = l.after_run_at
				AND j.id + 0 BETWEEN greatest(b, l.after_id + 1) AND b + ((1 << l.block) - 1)
			ORDER BY j.run_at, j.id + 0
		) AS within
		UNION ALL (
		SELECT j.run_at::timestamptz, j.id::bigint FROM dispatcherd.jobs_live j
		WHERE j.type = l.type AND j.priority = l.priority AND j.status = 'pending'
			AND (j.run_at, j.id + 0) > (l.after_run_at, l.beyond)` + ofShare + `
		ORDER BY j.run_at, j.id + 0 LIMIT l.most)
		LIMIT l.most
	) head
) heads
WHERE ids IS NOT NULL`

// minJump is the least number of rows that descents to blocks are worth.
const minJump = 16

// jumps reports whether some lane is better read by jumpSQL.
func jumps(lanes []contract.LaneQuery) bool {
	for i := range lanes {
		if canJump(&lanes[i]) {
			return true
		}
	}
	return false
}

func canJump(l *contract.LaneQuery) bool {
	return l.EqualTimestamps && !l.NonLocal && !l.Share.All() && l.After.ID > 0 && l.After.ID < math.MaxInt64 && l.Limit >= minJump
}

// encodeJumps makes the blocks to jump to.
func encodeJumps(req contract.FetchRequest) [][]byte {
	n := len(req.Lanes)
	var all []int64
	first, last, beyond := appendHeader(nil, oidInt4, n), appendHeader(nil, oidInt4, n), appendHeader(nil, oidInt8, n)
	for i := range req.Lanes {
		l := &req.Lanes[i]
		first = appendInt4(first, int32(len(all)+1))
		end := int64(l.After.ID)
		if canJump(l) {
			all, end = appendBlocks(all, l)
		}
		last, beyond = appendInt4(last, int32(len(all))), appendInt8(beyond, end)
	}
	blocks := appendHeader(nil, oidInt8, len(all))
	for _, b := range all {
		blocks = appendInt8(blocks, b)
	}
	return [][]byte{blocks, first, last, beyond}
}

// appendBlocks appends where those blocks of a share begin that hold as many ids
// as a lane wants, from its cursor on, and returns the id up to which there are
// no others. Where a share is tiny, it looks for them for a while only.
func appendBlocks(all []int64, l *contract.LaneQuery) ([]int64, int64) {
	size := int64(1) << l.Share.Block
	missing := int64(l.Limit)/size + 2
	b := int64(l.After.ID) &^ (size - 1)
	for range 16 * missing {
		if missing == 0 {
			break
		}
		if l.Share.Owns(dispatcherd.JobID(b)) {
			all = append(all, b)
			missing--
		}
		if b > math.MaxInt64-size {
			return all, math.MaxInt64 // the last block
		}
		b += size
	}
	return all, b - 1
}
