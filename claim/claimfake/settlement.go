package claimfake

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Counted is the result of Client.CountEnds.
type Counted struct {
	Ends    int  // that were counted
	Blocked bool // ends were left out, because another transaction has locked their batch
}

// beginSettlement follows flowstore.Settler.CountEnds. It locks the batches that the recorded ends change. The next phase counts
// the ends. Both leave out what others have locked.
func (s *Statement) beginSettlement(int64) State {
	t := s.table
	if t.Skip&CheckCounted != 0 {
		s.readEnds = slices.Clone(t.joins.ends)
	}
	for _, e := range t.joins.ends {
		s.lockBatches(t.changedBy(e))
	}
	return s.then((*Statement).commitSettlement)
}

func (s *Statement) commitSettlement(now int64) State {
	t := s.table
	t.commits++
	s.watchDependencies(now)
	mine := s.takeEnds(true)
	if s.readEnds != nil {
		mine = s.readEnds
	}
	for len(mine) > 0 {
		s.Counted.Ends += len(mine)
		for _, e := range mine {
			t.countEnd(e)
		}
		for _, e := range mine {
			for _, b := range t.changedBy(e) {
				t.continueBatch(now, b, e)
			}
		}
		mine = s.takeEnds(false)
	}
	return s.done(contract.OK)
}

// changedBy returns the batches that the end of a job changes.
func (t *Table) changedBy(e endRecord) (list []*batch) {
	if b := t.joins.batches[e.parent]; b != nil {
		list = append(list, b)
	}
	if !e.watched {
		return list
	}
	if b := t.joins.batches[e.job]; b != nil {
		list = append(list, b)
	}
	for _, n := range t.joins.edges[e.job] {
		list = append(list, n.batch)
	}
	return list
}

// lockBatches locks batches, without waiting. It reports false if another transaction has locked one of them.
func (s *Statement) lockBatches(list []*batch) bool {
	all := true
	for _, b := range list {
		if b.lock == nil {
			b.lock = s
			s.batches = append(s.batches, b)
		}
		all = all && b.lock == s
	}
	s.Counted.Blocked = s.Counted.Blocked || !all
	return all
}

// takeEnds deletes and returns the ends all of whose batches it can lock. Batches are checked again once in each statement.
func (s *Statement) takeEnds(again bool) (mine []endRecord) {
	t := s.table
	t.joins.ends = slices.DeleteFunc(t.joins.ends, func(e endRecord) bool {
		takes := (again || e.status != dispatcherd.Waiting) && s.lockBatches(t.changedBy(e))
		if takes {
			mine = append(mine, e)
		}
		return takes
	})
	return mine
}

// countEnd counts the end of a job in its batch, and for the nodes that depend on it.
func (t *Table) countEnd(e endRecord) {
	if e.status == dispatcherd.Waiting {
		return
	}
	bad := 0
	if e.status != dispatcherd.Done {
		bad = 1
	}
	if b := t.joins.batches[e.parent]; b != nil {
		b.open--
		b.bad += bad
	}
	if e.watched {
		for _, n := range t.joins.edges[e.job] {
			n.open--
			n.bad += bad
		}
	}
}

// continueBatch does what follows from the end of a job, or from a check: it cancels the members if the job of the batch has
// ended, and releases what is ready.
func (t *Table) continueBatch(now int64, b *batch, e endRecord) {
	if b.ended {
		return
	}
	b.cancelled = b.cancelled || b.id == e.job && e.status != dispatcherd.Waiting && t.Skip&CheckChildren == 0
	if b.cancelled {
		t.cancelMembers(b)
		t.seal(b)
	}
	t.advance(now, b)
}

// cancelMembers follows the SQL function cancel_members.
func (t *Table) cancelMembers(b *batch) {
	again := false
	for _, id := range b.members {
		switch r := t.rows[id]; {
		case r.Status.Final():
		case r.Status != dispatcherd.Running && r.lock != nil:
			again = true
		default:
			t.Cancel(id)
		}
	}
	if again {
		t.checkAgain(b)
	}
}

// watchDependencies follows the SQL function link_dependencies.
func (s *Statement) watchDependencies(now int64) {
	t := s.table
	var counted []*batch
	t.joins.unlinked = slices.DeleteFunc(t.joins.unlinked, func(l outerEdge) bool {
		r, b := t.rows[l.before], l.after.batch
		if !s.lockBatches([]*batch{b}) || r.lock != nil && !r.Status.Final() || t.recorded(r.ID) && t.Skip&CheckLinked == 0 {
			return false
		}
		t.joins.edges[r.ID] = append(t.joins.edges[r.ID], l.after)
		if !r.Status.Final() {
			r.Watched = true
			return true
		}
		l.after.open--
		if r.Status != dispatcherd.Done {
			l.after.bad++
		}
		counted = append(counted, b)
		return true
	})
	for _, b := range counted {
		t.advance(now, b)
	}
}

// recorded reports whether the end of a job is recorded for nodes, and not counted yet.
func (t *Table) recorded(id dispatcherd.JobID) bool {
	return slices.ContainsFunc(t.joins.ends, func(e endRecord) bool { return e.job == id && e.watched })
}

// spawn is a request to insert children.
type spawn struct {
	parent   dispatcherd.JobID
	attempt  dispatcherd.Attempt
	children func() []Row
}

// beginSpawn follows claim.InsertChildren. It waits for the lock of the parent.
func (s *Statement) beginSpawn(int64) State {
	t := s.table
	r := t.rows[s.spawn.parent]
	b := t.joins.batches[r.ID]
	runs := r.Status == dispatcherd.Running && r.Attempt == s.spawn.attempt || t.Skip&CheckParent != 0
	if !runs || slices.Contains(t.cancels, r.ID) || b != nil && b.cancelled {
		s.Spawned.Rule = dispatcherd.RuleParentIsRunning
		return s.done(contract.Refused)
	}
	if !s.lock(r) {
		return Polling
	}
	return s.then((*Statement).commitSpawn)
}

func (s *Statement) commitSpawn(now int64) State {
	t := s.table
	t.commits++
	r := t.rows[s.spawn.parent]
	r.Watched = true
	b := t.joins.batches[r.ID]
	if b == nil {
		b = &batch{id: r.ID}
		t.joins.batches[r.ID] = b
	}
	b.sealed, b.ended = false, false
	for _, child := range s.spawn.children() {
		child.Parent = r.ID
		s.Spawned.IDs = append(s.Spawned.IDs, t.Insert(now, child))
	}
	if t.Subscribed(0) {
		t.observer.Notified()
	}
	return s.done(contract.OK)
}
