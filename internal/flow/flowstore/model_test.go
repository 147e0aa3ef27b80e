package flowstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
)

// state is what the tables say. Its rules are naive: they read the rows and know no counters.
type state struct {
	Jobs  map[int64]*jobRow
	Nodes map[int64]*nodeRow
	Joins map[int64]*joinRow
}

type jobRow struct {
	ID, Parent int64
	Status     string
	Attempt    int
	By         string
	Asked      bool // a request to cancel exists
}

type nodeRow struct {
	ID, Flow                      int64
	After                         []int64
	RunWhen                       string
	Ready                         bool
	Open, Done, Failed, Cancelled int
}

type joinRow struct {
	ID                      int64
	Kind, RunWhen, By       string
	Callback, Sealed, Ended bool
	Open                    *int
	Done, Failed, Cancelled int
}

const readSQL = `SELECT json_build_object(
	'jobs', (SELECT coalesce(json_agg(json_build_object('id', j.id, 'parent', coalesce(j.parent, 0), 'status', j.status, 'attempt',
		j.attempt, 'by', coalesce(j.cancelled_by, ''),
		'asked', c.target IS NOT NULL)), '[]') FROM dispatcherd.jobs j
		LEFT JOIN dispatcherd.operations c ON c.kind = 'cancel' AND c.target = j.id),
	'nodes', (SELECT coalesce(json_agg(json_build_object('id', id, 'flow', flow, 'after', depends_on, 'runwhen', run_when, 'ready',
		ready_at IS NOT NULL,
		'open', open, 'done', done, 'failed', failed, 'cancelled', cancelled)), '[]') FROM dispatcherd.nodes),
	'joins', (SELECT coalesce(json_agg(json_build_object('id', id, 'kind', kind, 'runwhen', run_when, 'by', coalesce(cancelled_by, ''),
		'callback', callback,
		'sealed', sealed_at IS NOT NULL, 'ended', ended_at IS NOT NULL, 'open', open, 'done', done, 'failed', failed, 'cancelled',
			cancelled)), '[]')
		FROM dispatcherd.batches))::text`

// read reads the tables.
func (w *world) read() state {
	w.t.Helper()
	var rows struct {
		Jobs  []*jobRow
		Nodes []*nodeRow
		Joins []*joinRow
	}
	require.NoError(w.t, json.Unmarshal([]byte(get[string](w, readSQL)), &rows))
	s := state{map[int64]*jobRow{}, map[int64]*nodeRow{}, map[int64]*joinRow{}}
	for _, j := range rows.Jobs {
		require.NotContains(w.t, s.Jobs, j.ID, "two rows")
		s.Jobs[j.ID] = j
	}
	for _, n := range rows.Nodes {
		s.Nodes[n.ID] = n
	}
	for _, j := range rows.Joins {
		s.Joins[j.ID] = j
	}
	return s
}

func ended(status string) bool {
	return status == "done" || status == "failed" || status == "cancelled"
}

// tally counts ends.
type tally struct{ Open, Done, Failed, Cancelled int }

func (c *tally) add(status string) {
	switch status {
	case "done":
		c.Done++
	case "failed":
		c.Failed++
	case "cancelled":
		c.Cancelled++
	default:
		c.Open++
	}
}

// runs says whether a job runs after these ends.
func (c tally) runs(runWhen string) bool {
	bad := c.Failed + c.Cancelled
	return runWhen == "ended" || runWhen == "done" && bad == 0 || runWhen == "failed" && bad > 0
}

// dependencies counts the dependencies of a node.
func (s state) dependencies(n *nodeRow) (c tally) {
	for _, id := range n.After {
		c.add(s.Jobs[id].Status)
	}
	return c
}

// memory is what the rows do not say any more.
type memory struct {
	owner  map[int64]int64  // the batch or flow in which a job was inserted
	left   map[int64]string // the end that counted of a member that was retried too late
	doomed map[int64]bool   // batches whose callback or parent ended before them: their members are cancelled
}

// ends counts the ends of the members of a batch.
func (m memory) ends(s state, batch int64) (c tally) {
	for id, owner := range m.owner {
		if owner == batch {
			c.add(m.counts(s, id))
		}
	}
	return c
}

// counts is the status of a member as its batch counts it.
func (m memory) counts(s state, id int64) string {
	if left, found := m.left[id]; found {
		return left
	}
	return s.Jobs[id].Status
}

// note takes what an operation has changed.
func (m memory) note(old, now state) {
	for id, j := range now.Jobs {
		switch owner := m.owner[id]; {
		case j.Parent != 0:
			m.owner[id] = j.Parent
			delete(m.left, id)
		case owner != 0 && m.left[id] == "":
			m.left[id] = old.Jobs[id].Status
		}
	}
	for id, b := range now.Joins {
		if was := old.Joins[id]; was != nil && b.Kind == "flow" && (was.Ended && !b.Ended || was.By != "" && b.By == "") {
			maps.DeleteFunc(m.left, func(node int64, _ string) bool { return m.owner[node] == id }) // all nodes belong to the flow again
		}
		callback := now.Jobs[id]
		switch {
		case b.Ended || b.By != "":
			delete(m.doomed, id)
		case callback != nil && ended(callback.Status) && callback.By != "flow" && old.Jobs[id] != nil && !ended(old.Jobs[id].Status):
			m.doomed[id] = true
		}
	}
}

// afterCounts returns the statuses of jobs after all ends are counted, and the batches that have ended.
func (m memory) afterCounts(s state) (statuses map[int64]string, over map[int64]bool) {
	next := state{map[int64]*jobRow{}, s.Nodes, s.Joins}
	for id, j := range s.Jobs {
		row := *j
		next.Jobs[id] = &row
	}
	over = map[int64]bool{}
	dead := map[int64]bool{}
	for id, b := range s.Joins {
		over[id] = b.Ended
		dead[id] = !b.Ended && (b.By != "" || m.doomed[id] && ended(s.Jobs[id].Status))
	}
	for changed := true; changed; {
		changed = false
		for _, id := range slices.Sorted(maps.Keys(next.Jobs)) {
			j := next.Jobs[id]
			if below := s.Joins[id] != nil && !over[id] && !dead[id]; dead[j.Parent] && !ended(j.Status) && below {
				dead[id], changed = true, true
			}
			if dead[j.Parent] && (j.Status == "waiting" || j.Status == "pending") {
				j.Status, changed = "cancelled", true
			}
			n := s.Nodes[id]
			if n == nil || j.Status != "waiting" {
				continue
			}
			if c := next.dependencies(n); c.Open == 0 {
				j.Status, changed = outcome(c.runs(n.RunWhen)), true
			}
		}
		for id, b := range s.Joins {
			c := m.ends(next, id)
			if over[id] || !b.Sealed && !dead[id] || c.Open > 0 {
				continue
			}
			over[id], changed = true, true
			if callback := next.Jobs[id]; b.Callback && callback.Status == "waiting" {
				callback.Status = outcome(!dead[id] && c.runs(b.RunWhen))
			}
		}
	}
	statuses = map[int64]string{}
	for id, j := range next.Jobs {
		statuses[id] = j.Status
	}
	return statuses, over
}

func outcome(runs bool) string {
	if runs {
		return "pending"
	}
	return "cancelled"
}

// problem says what is wrong with counters after all ends are counted; "" = nothing.
func (m memory) problem(s state) string {
	for id, n := range s.Nodes {
		if c, want := (tally{n.Open, n.Done, n.Failed, n.Cancelled}), s.dependencies(n); !n.Ready && c != want {
			return fmt.Sprintf("node %d counts %+v, its dependencies are %+v", id, c, want)
		}
	}
	for id, b := range s.Joins {
		c, want := tally{0, b.Done, b.Failed, b.Cancelled}, m.ends(s, id)
		if b.Sealed {
			c.Open = *b.Open
		} else {
			want.Open = 0
		}
		if c != want {
			return fmt.Sprintf("%s %d counts %+v, its members are %+v", b.Kind, id, c, want)
		}
	}
	for id, j := range s.Jobs {
		if b := s.Joins[j.Parent]; j.Status == "running" && b != nil && b.By != "" && !b.Ended && !j.Asked {
			return fmt.Sprintf("job %d runs below the cancelled batch %d and was not asked to end", id, b.ID)
		}
	}
	return ""
}
