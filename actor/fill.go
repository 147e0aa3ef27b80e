package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// fill merges what Postgres answered for one lane.
func (c *Core) fill(a asking, lane *contract.LaneQuery, rows []contract.Candidate, res contract.FetchResult) {
	k := &c.kinds[a.typ]
	l := c.noted(a.laneRef)
	if !k.held || l == nil || !l.asked || c.index.Name(a.typ) != lane.Type {
		return // the type was forgotten meanwhile, or its shares
	}
	l.asked = false
	switch {
	case res.Verdict != contract.OK && a.foreign:
		c.fetch.foreign.again(k)
		return
	case res.Verdict != contract.OK:
		l.seen = c.fetch.epoch - 1
		if a.look {
			l.looked = c.fetch.looks - 1
		}
		return
	case l.list != a.list: // what was asked about was thrown away meanwhile
		c.fetch.lookAgain(c, a.laneRef)
		return
	}
	before := l.len()
	if a.foreign {
		c.fillForeign(a, rows, len(rows) == lane.Limit, res.DBNow)
	} else {
		c.fillOwn(a, l, rows, lane.Limit, res.DBNow)
	}
	c.cached += l.len() - before
	c.mark(a.typ, a.priority)
	c.fetch.wantMore(c, a.laneRef) // it may have run dry meanwhile, and the look brought nothing
}

// fillOwn merges what Postgres answered for a lane of the own share.
func (c *Core) fillOwn(a asking, l *lane, rows []contract.Candidate, limit int, dbNow int64) {
	due := rows
	for len(due) > 0 && due[len(due)-1].Key.RunAt > dbNow {
		due = due[:len(due)-1]
	}
	if len(due) < len(rows) {
		c.fetch.expect(rows[len(due)].Key.RunAt)
	}
	full := len(due) == limit
	l.crowd = full && due[limit/2].Key.RunAt == due[limit-1].Key.RunAt
	if !full {
		c.fetch.foreign.stirred = true // its slots may be hungry now
	}
	switch {
	case !a.look:
		c.extend(l, due, full)
	case l.pops == a.pops:
		c.replace(l, due, full)
		if len(due) < len(rows) && !l.cursor.Less(rows[len(due)].Key) {
			l.cursor = rows[len(due)].Key // the database clock went back: read on from here when it is due again
			l.cursor.ID--
		}
	default:
		c.merge(l, due, a.first)
	}
}

// extend appends the rows behind the cursor. They count as a list of their own
// once nothing of the one before is left.
func (c *Core) extend(l *lane, rows []contract.Candidate, full bool) {
	if l.len() == 0 {
		l.list++
		l.lost = 0
	}
	l.compact()
	for _, r := range rows {
		if l.cursor.Less(r.Key) && !c.isInHand(r.Key) {
			l.keys = append(l.keys, r.Key)
		}
		l.cursor = r.Key
	}
	l.more = full
}

// replace puts a full look in the place of everything the lane held; the lane
// was not touched since it was asked. What lies behind the last row of a full
// answer is read again rather than believed.
func (c *Core) replace(l *lane, rows []contract.Candidate, full bool) {
	if n := len(rows); n > 0 && (full || l.cursor.Less(rows[n-1].Key)) {
		l.cursor = rows[n-1].Key
	}
	l.keys, l.head = l.keys[:0], 0
	for _, r := range rows {
		if !c.isInHand(r.Key) {
			l.keys = append(l.keys, r.Key)
		}
	}
	l.more = full
	l.list++
	l.lost = 0
}

// merge takes from a full look only what lay before the lane's first key when
// it was asked: of the others some were taken since, and which is not known.
func (c *Core) merge(l *lane, rows []contract.Candidate, first contract.Key) {
	for _, r := range rows {
		if !r.Key.Less(first) {
			l.more = l.more || l.cursor.Less(rows[len(rows)-1].Key)
			return
		}
		if !c.isInHand(r.Key) {
			l.insert(r.Key)
		}
	}
}

// isInHand is isHeld for a fetch.
func (c *Core) isInHand(k contract.Key) bool { return c.isHeld(k, c.fetch.gone) }

// isHeld reports whether a row that was read as pending is still in hand, or was
// until just now, as gone says. At
// the very position it was taken from, the fetch saw it as it was before. At
// another one it is pending again while an attempt is still being recorded
// here; then the lane is looked at again once that is over.
func (c *Core) isHeld(k contract.Key, gone []contract.Key) bool {
	j := c.jobs.getOld(k.ID)
	if j == nil {
		_, left := slices.BinarySearchFunc(gone, k, contract.Key.Compare)
		return left
	}
	j.again = j.again || j.key != k
	return true
}

// comeBack returns the key of a row that is pending again to its lane. Behind
// the cursor the next fetch finds it anyway.
func (c *Core) comeBack(j *job) {
	k := &c.kinds[j.typ]
	if !k.held || c.index.Capacity(j.typ) == 0 {
		return
	}
	r := c.laneOf(j.typ, j.priority, j.id)
	if r.foreign {
		c.fetch.foreign.again(k)
		return
	}
	l := c.lane(r)
	if l.cursor.Less(j.key) {
		c.fetch.mayHaveMore()
		return
	}
	if l.insert(j.key) {
		c.cached++
		l.pops++ // a look that is under way may not know the row as pending: it must not replace the lane
	}
	c.mark(j.typ, j.priority)
}
