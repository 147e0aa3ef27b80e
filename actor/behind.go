package actor

import (
	"math"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// behind reads what lies behind the cursors of lanes, while a full look is dear:
// while somebody holds a snapshot, Postgres can neither remove nor skip the index
// entries of the jobs that have ended since, and each of them costs a look about
// a microsecond. Then a look asks for the rows up to the cursor, on a connection
// of its own, and reading on, which never meets those entries, waits for none.
// The two ranges are disjoint, and the look's rows are merged: of those that were
// pending when it began, all are known that have left their place since.
//
// A round asks every lane that is due once. Between two rounds lies fifty times
// what the last one took, at most longestRest; and never more than longestPause
// polls unless the one before was as dear, and reading on was quick meanwhile: a
// round that hung, or a server that is slow with everything, says nothing about
// the next.
type behind struct {
	due     bool                   // some lane is
	from    int                    // the type with which the round under way goes on; 0 = with none
	asked   []asking               // the look in flight, if it is not empty
	request *contract.FetchRequest // reused
	sentAt  Instant
	spent   Instant        // by the round under way, or the last one
	last    Instant        // by the one before
	slowest Instant        // what a fetch took while the round was under way
	next    Instant        // no round begins before
	gone    []contract.Key // places before a bound of the look in flight that rows have left since it was sent
}

const (
	// dearLook is what a full look may take, in ms, before reading on must not
	// wait for one any more: twice in a row, as the machine may have been busy.
	dearLook = 20
	// dearAtOnce is what no busy machine explains.
	dearAtOnce = 10 * dearLook
	// longestRest is the longest pause between two rounds of looks, in ms, and so
	// what a row that was committed late waits, and the look itself.
	longestRest = 5 * 60_000
)

// takesBehind notes that what lies behind a lane's cursor is to be read, if that is the
// way to look at it now, instead of a full look.
func (f *fetching) takesBehind(l *lane) bool {
	if !f.dear && l.before == (contract.Key{}) || l.seen == 0 || l.cursor == (contract.Key{}) {
		return false
	}
	l.looked, l.due, f.behind.due = f.looks, true, true
	return true
}

// measure learns from a full look whether the next one is to be kept apart.
func (f *fetching) measure(c *Core, took Instant) {
	if f.dear {
		return // it was about lanes of which nothing was ever read
	}
	f.dear = took > dearAtOnce || min(took, f.lookTook) > dearLook
	f.lookTook, f.lookedAt = took, c.now
}

// flushBehind sends a look at what lies behind cursors, if one is due.
func (c *Core) flushBehind() {
	b := &c.fetch.behind
	if c.draining || len(b.asked) > 0 || c.outage.since(looks, c.now) {
		return
	}
	if b.from == 0 {
		if !b.due || c.now < b.next {
			return
		}
		b.due, b.last, b.spent, b.slowest = false, b.spent, 0, 0
	}
	if b.request == nil {
		b.request = &contract.FetchRequest{Backfill: true}
	}
	b.request.Lanes, b.gone = b.request.Lanes[:0], b.gone[:0]
	for b.from < len(c.kinds) && len(b.asked)+priorities <= max(priorities, c.cfg.Limits.LanesPerFetch) {
		c.askBehind(slotindex.TypeID(b.from))
		b.from++
	}
	if b.from >= len(c.kinds) {
		b.from = 0
	}
	switch {
	case len(b.asked) > 0:
		b.sentAt = c.now
		c.emit(c.memory.fetch.add(Fetch{Request: b.request}))
	case b.spent > 0:
		c.fetch.rest(c, true) // the last part of a round found nothing to ask
	}
}

// askBehind adds the lanes of a type that are due.
func (c *Core) askBehind(t slotindex.TypeID) {
	b := &c.fetch.behind
	k := &c.kinds[t]
	for p := range k.queued {
		l := &k.queued[p]
		if !l.due {
			continue
		}
		l.due = false
		if !k.held || c.index.Capacity(t) == 0 {
			continue // its next slot discovers it
		}
		l.before = justBehind(l.cursor)
		// What waits here or is in hand may all be in the answer.
		limit := int(l.length) + l.len() + int(k.jobs)
		b.asked = append(b.asked, asking{laneRef: laneRef{typ: t, priority: dispatcherd.Priority(p)}})
		b.request.Lanes = append(b.request.Lanes, contract.LaneQuery{
			Type: c.index.Name(t), Priority: dispatcherd.Priority(p), Before: l.before, Limit: limit, Share: k.share,
		})
	}
}

// justBehind returns the first place behind a row.
func justBehind(k contract.Key) contract.Key {
	if k.ID == math.MaxInt64 {
		return contract.Key{RunAt: k.RunAt + 1}
	}
	k.ID++
	return k
}

// wake is when the next round may be due.
func (b *behind) wake(c *Core) Instant {
	if c.draining || len(b.asked) > 0 || !b.due || c.outage.since(looks, c.now) {
		return Never
	}
	return b.next
}

// lookedBehind takes the answer of a look.
func (c *Core) lookedBehind(req *contract.FetchRequest, res contract.FetchResult) {
	b := &c.fetch.behind
	if len(b.asked) == 0 || len(req.Lanes) != len(b.asked) {
		return // an answer that was given before
	}
	b.spent += c.now - b.sentAt
	if res.Verdict == contract.OK {
		c.outage.over(looks)
	} else {
		c.outage.begin(looks, c)
	}
	slices.SortFunc(b.gone, contract.Key.Compare)
	rest := res.Candidates
	for i, a := range b.asked {
		n := 0
		for n < len(rest) && rest[n].Lane == i {
			n++
		}
		c.fillBehind(a, &req.Lanes[i], rest[:n], res)
		rest = rest[n:]
	}
	b.asked = b.asked[:0]
	if b.from == 0 {
		c.fetch.rest(c, res.Verdict == contract.OK)
	}
}

// rest ends a round.
func (f *fetching) rest(c *Core, ok bool) {
	b := &f.behind
	if f.inFlight() {
		b.slowest = max(b.slowest, c.now-f.sentAt)
	}
	pause := Instant(longestPause * c.cfg.Poll.Milliseconds())
	if dear := min(b.spent, b.last); dear > dearAtOnce && b.slowest < dear/4 {
		pause = max(pause, min(50*dear, longestRest))
	}
	b.next = c.now + min(pause, 50*b.spent)
	if ok {
		f.dear = b.spent > dearLook
		f.lookTook, f.lookedAt = b.spent, c.now
	}
}

// fillBehind merges what was found behind the cursor of one lane. A row that is
// not here now, and has not left since the look began, was committed late or
// became pending again.
func (c *Core) fillBehind(a asking, lane *contract.LaneQuery, rows []contract.Candidate, res contract.FetchResult) {
	k := &c.kinds[a.typ]
	l := &k.queued[a.priority]
	if !k.held || l.before != lane.Before || c.index.Name(a.typ) != lane.Type {
		return // the type was forgotten meanwhile
	}
	l.before = contract.Key{}
	if res.Verdict != contract.OK || k.share != lane.Share {
		l.due, c.fetch.behind.due = true, true
		return
	}
	waited := l.len()
	for i, r := range rows {
		if r.Key.RunAt > res.DBNow { // the database clock went back
			c.fetch.expect(r.Key.RunAt)
			r.Key.ID--
			l.fallBack(r.Key)
			break
		}
		if !l.cursor.Less(r.Key) && !c.isHeld(r.Key, c.fetch.behind.gone) {
			l.insert(r.Key)
		}
		if i == lane.Limit-1 { // there is more than could be read
			l.fallBack(r.Key)
		}
	}
	c.cached += l.len() - waited
	c.mark(a.typ, a.priority)
	c.fetch.wantMore(c, a.laneRef)
}

// fallBack makes a lane be read on from an earlier place. What was read behind
// that is read again, in order with what the place was moved back for.
func (l *lane) fallBack(to contract.Key) {
	if !to.Less(l.cursor) {
		return
	}
	l.compact()
	n, _ := slices.BinarySearchFunc(l.keys, to, contract.Key.Compare)
	for n < len(l.keys) && !to.Less(l.keys[n]) {
		n++
	}
	l.keys = l.keys[:n]
	l.cursor = to
	l.more = true
	l.list++
	l.lost = 0
	l.pops++
}
